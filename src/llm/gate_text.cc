#include "llm/accuracy.h"

namespace leeway::llm {
namespace {

// Written for this purpose: a story, an explanation, a recipe, a letter, a program with its description, a dialogue, figures.
constexpr std::string_view kPassages[] = {
    R"(The ferry to the island left twice a day, once before breakfast and once when the light had begun to fail. Marta took the early one. She had a basket of seedlings on her knees, wrapped in wet newspaper, and a letter in her coat that she had read so often that it had come apart along the folds. Nobody else was on deck. The engine shook the benches, gulls stood on the rail as if they had paid for their places, and far out a line of rain moved slowly across the bay without ever coming nearer.

Her grandfather was waiting at the landing, as he had waited every spring since she was six. He had grown smaller. He looked at the basket before he looked at her, lifted a corner of the paper, and nodded. "Tomatoes," he said, "and too many of them." Then he laughed and took her bag, and they walked up the hill between the stone walls, and neither of them mentioned the house that was going to be sold.)",

    R"(A lens bends light because light is slower in glass than in air. Where a ray meets the surface at an angle, one side of the wave enters the glass first and is held back, so the whole wave turns, just as a cart turns when one wheel runs into sand. The more slowly light moves in a material, the stronger the turn; this is what the index of refraction measures. In a vacuum the index is exactly 1, in water it is about 1.33, in common glass about 1.5, and in diamond 2.4, which is why a cut diamond throws back so much of the light that falls into it.

Colours are bent differently: blue a little more than red. A single lens therefore cannot bring all colours to the same point, and early telescopes showed bright objects with coloured edges. The remedy, found in the eighteenth century, is to combine two kinds of glass whose errors cancel each other.)",

    R"(Lentil soup for four people

Ingredients: 250 g of brown lentils, 1 large onion, 2 carrots, 2 cloves of garlic, 3 tablespoons of olive oil, 1 teaspoon of ground cumin, 1 bay leaf, 1.2 litres of water, salt, pepper, and the juice of half a lemon.

1. Wash the lentils and let them drain. Chop the onion finely and cut the carrots into small cubes.
2. Heat the oil in a large pot. Fry the onion over a low heat for about eight minutes, until it is soft and golden, then add the garlic and the cumin and stir for one minute more.
3. Add the carrots, the lentils, the bay leaf and the water. Bring to the boil, then cover the pot and simmer for 35 minutes.
4. Take out the bay leaf. Season with salt and pepper, stir in the lemon juice, and serve with bread.)",

    R"(def running_mean(values, width):
    """Returns the mean of each `width` neighbouring values.

    The result has len(values) - width + 1 elements; it is empty if there are fewer values than that.
    """
    if width < 1:
        raise ValueError("width must be at least 1")
    means = []
    total = sum(values[:width])
    for i in range(len(values) - width + 1):
        means.append(total / width)
        if i + width < len(values):
            total += values[i + width] - values[i]
    return means


print(running_mean([1, 2, 3, 4, 5], 2))  # [1.5, 2.5, 3.5, 4.5])",

    R"("You are late," said the clerk, without looking up from his ledger.

"The bridge was closed," the traveller answered. "I had to go round by the mill. Is there still a room?"

"There is one. It faces the stables, and the window does not shut. It costs the same as the others."

"Why the same, if it is worse?"

"Because you are late," said the clerk, and this time he did look up, and he was smiling. "Sign here. Breakfast is at seven. If you want an egg, you must say so tonight, since the hens do not take orders in the morning.")",

    R"(In 1850 the town had 2,140 inhabitants; fifty years later there were 18,900. The railway, which reached it in 1862, explains most of this growth. Before that, a wagon with a load of timber needed four days to the coast and paid tolls at three places. By train the same journey took seven hours. Sawmills moved from the forest to the station, then came a paper mill, then two factories for furniture. Wages rose, and so did rents. The council built a school in 1871, waterworks in 1879 and a hospital in 1888, each time on credit, and each time over the protests of those who remembered the town as a village.

What the figures do not show is how uneven the gain was. On the north bank of the river, where the workers lived, one child in four died before the age of five, twice as many as on the hill. Only when the wells were closed and the pipes had been laid to every street did the difference begin to shrink.)",
};

}  // namespace

std::span<const std::string_view> GatePassages() { return kPassages; }

}  // namespace leeway::llm
