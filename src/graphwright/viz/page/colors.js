// Which color a box has: by what its node does, or by how much it costs.

const CATEGORIES = [
  ["layer", /conv|linear|matmul|^mm$|bmm|addmm|einsum|embedding|lstm|gru|rnn|attention|^sdpa/i],
  ["norm", /norm/i],
  ["activation", /relu|gelu|silu|sigmoid|tanh|softmax|softplus|swish|mish|elu|dropout|activation/i],
  ["pool", /pool|mean|^sum$|amax|amin|^max$|^min$|argmax|argmin|upsample|interpolate|^all$|^any$/i],
  [
    "shape",
    /view|reshape|flatten|transpose|permute|squeeze|cat|stack|split|chunk|expand|getitem|size|slice|contiguous|unbind|repeat|pad|narrow|select|^to$|float|^t$|len|shape|dim/i,
  ],
];

function categoryOf(node) {
  if (node.op === "placeholder") return "input";
  if (node.op === "output") return "output";
  if (node.op === "get_attr") return "attribute";
  if (node.is_guard) return "guard";
  const found = CATEGORIES.find(([, pattern]) => pattern.test(node.call ?? ""));
  return found ? found[0] : "math";
}

// How hot each shown box is, from 0 to 1, and what the hottest comes to. Of open groups, what is inside counts.
function heatOf(tree, measure) {
  const hot = new Map();
  let most = 0;
  for (const box of tree.shownBoxes()) {
    const value = box.isOpen ? box.node?.[measure] : box.totals[measure];
    if (value !== undefined) (hot.set(box, value), (most = Math.max(most, value)));
  }
  for (const [box, value] of hot) hot.set(box, most ? Math.sqrt(value / most) : 0);
  return { hot, most, total: tree.root.totals[measure] ?? 0 };
}
