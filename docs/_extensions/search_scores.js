/* Scores of the site's search: a heading with the words ranks above a page that uses them somewhere. */
var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => kind === "title" ? score + 100 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
