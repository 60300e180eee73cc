#include "llm/models/pre_norm.h"

#include "base/strings.h"

namespace leeway::llm {

void BuildPreNorm(GraphBuilder& b) {
  ValueId x = b.Embed("token_embd.weight", b.config().embedding_scale);
  for (int64_t l = 0; l < b.layer_count(); ++l) {
    auto name = [&](const char* what) { return StrCat("blk.", l, ".", what); };
    ValueId h = b.Norm(x, LayerTensor(l, "attn_norm"));
    if (l + 1 == b.layer_count() && !b.has_head()) return b.AppendCache(l, h);
    h = b.Attention(l, h, b.NarrowsAt(l));
    if (b.NarrowsAt(l)) x = b.TakeLastRow(x, name("last_row"));
    x = b.Add(x, b.Linear(h, LayerTensor(l, "attn_output"), b.config().width), name("attn_residual"));
    h = b.FeedForward(l, b.Norm(x, LayerTensor(l, "ffn_norm")));
    x = b.Add(x, h, name("ffn_residual"));
  }
  b.Head(x);
}

}  // namespace leeway::llm
