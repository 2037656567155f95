/* Guides and settings come first, then what describes parts and other systems, then how the project is made. */
const FACTORS = [
  [/^(docs\/(decisions|results)\b|docs\/(architecture|benchmarks|features|progress|testing)$|(bench|files|localcloud|tests)\/|(CONTRIBUTING|CHANGELOG)$)/, 0.1],
  [/^(docs\/(reference\/|from-|(comparison|limits|old-arguments)$)|roles\/)/, 0.5],
];

/* The other numbers are Sphinx's own. */
var Scorer = {
  score: ([docname, _title, _anchor, _description, score]) =>
    score * (FACTORS.find(([pages]) => pages.test(docname)) ?? [null, 1])[1],
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
