// Excerpts of search results come from the article alone, without the menu of the theme above it.
if (typeof Search !== "undefined") {
  const toText = Search.htmlToText
  Search.htmlToText = (html, anchor) => {
    const article = new DOMParser().parseFromString(html, "text/html").querySelector("article.bd-article")
    return toText(article ? `<div role="main">${article.outerHTML}</div>` : html, anchor)
  }
}
