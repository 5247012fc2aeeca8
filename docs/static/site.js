// Excerpts of search results come from the article alone, without the menu of the theme above it, and show the words of
// the query in any of their forms. First come pages, then sections, whose titles have the words; terms of the glossary
// and parameters of functions come later.
if (typeof Search !== "undefined") {
  const stemmer = new Stemmer()
  const words = text => text.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter(Boolean)
  const query = words(new URLSearchParams(location.search).get("q") || "")
  const stems = query.map(word => stemmer.stemWord(word))
  const later = /^(gallery|generated|guides|from-|benchmark-results|contributing|reference)/

  Scorer.score = ([page, title, anchor, description, score, file, kind]) => {
    if (kind === "object") {
      const isName = query.includes(title.split(/\W+/).pop().toLowerCase())
      return score - (/parameter/.test(description) ? 50 : isName ? 0 : 20)
    }
    if (kind === "index") return Math.min(score, 15)
    const heading = words(title.split(" > ").pop())
    const stemmed = heading.map(word => stemmer.stemWord(word))
    const matched = stems.every(stem => stemmed.includes(stem))
    return score + matched * 20 + (matched && query.every(word => heading.includes(word))) * 2
      + (stemmed[0] === stems[0]) * 5 + !anchor * 5 - later.test(page) * 6
  }

  const toText = Search.htmlToText
  Search.htmlToText = (html, anchor) => {
    const article = new DOMParser().parseFromString(html, "text/html").querySelector("article.bd-article")
    return toText(article ? `<div role="main">${article.outerHTML}</div>` : html, anchor)
  }
  const summarize = Search.makeSearchSummary
  Search.makeSearchSummary = (html, keywords, anchor) => summarize(html, [...keywords, ...query], anchor)
}

// On a phone, a row of a wide table is a block; each of its cells then begins with the head of its column. A number
// stays beside its unit.
for (const table of document.querySelectorAll(".bd-article table.table")) {
  const heads = [...table.querySelectorAll("thead th")].map(each => each.textContent)
  if (heads.length < 3) continue
  table.classList.add("wide")
  for (const row of table.querySelectorAll("tbody tr")) {
    [...row.cells].forEach((cell, place) => {
      cell.dataset.head = heads[place]
      if (cell.textContent.length < 10) cell.style.whiteSpace = "nowrap"
    })
  }
}

// Diagrams are drawn after the page; those that are wider than high keep a width that can be read, and scroll.
for (const block of document.querySelectorAll("pre.mermaid")) {
  new MutationObserver(() => {
    const box = block.querySelector("svg")?.viewBox.baseVal
    block.classList.toggle("wide", Boolean(box) && box.width > box.height)
  }).observe(block, { childList: true })
}

// A link to a section that moved to another page goes on there, by this page's own link to it.
if (location.hash && !document.getElementById(location.hash.slice(1))) {
  const moved = [...document.links].find(each => each.hash === location.hash && each.pathname !== location.pathname)
  if (moved) location.replace(moved.href)
}
