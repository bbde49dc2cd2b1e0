//! From a page in HTML to its main content in Markdown.

use dom_query::{Document, NodeRef};
use dom_smoothie::{Config, Readability};
use htmd::HtmlToMarkdown;
use url::Url;

use super::parse::parse;
use super::visible;

/// Larger pages have no article to look for: they are lists, or attacks.
const MOST_ELEMENTS: usize = 50_000;
/// An article of fewer characters is probably not what the page is about.
const LEAST_ARTICLE: usize = 250;
const MAX_TITLE: usize = 300;

/// A page as Markdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Converted {
    pub(super) title: Option<String>,
    pub(super) text: String,
}

/// Attributes that the conversion needs.
const KEPT: [&str; 12] = [
    "href", "src", "alt", "title", "class", "id", "rel", "role", "start", "colspan", "rowspan", "lang",
];

/// Converts a page; `None` if it is too complex. The URL completes its links.
pub(super) fn convert(html: &str, url: &Url) -> Option<Converted> {
    let page = parse(html)?;
    let title = title(&page);
    let base = base(&page, url);
    super::remove_hidden(&page);
    for element in page.select("*").nodes() {
        element.retain_attrs(&KEPT);
    }
    complete_links(&page, &base);
    let whole = page
        .body()
        .map(|body| body.inner_html().to_string())
        .unwrap_or_default();
    let content = article(page, url).unwrap_or(whole);
    let markdown = HtmlToMarkdown::new().convert(&content).unwrap_or_default();
    let markdown = tidy(&visible(&markdown));
    let text = match &title {
        Some(title)
            if !markdown
                .lines()
                .take(3)
                .any(|line| line.trim_start_matches(['#', ' ']) == title) =>
        {
            format!("# {title}\n\n{markdown}")
        }
        _ => markdown,
    };
    Some(Converted { title, text })
}

fn title(page: &Document) -> Option<String> {
    let title = page.select_single("title").text();
    let words: Vec<_> = title.split_whitespace().collect();
    let title: String = visible(&words.join(" ")).chars().take(MAX_TITLE).collect();
    Some(title).filter(|title| !title.trim().is_empty())
}

fn base(page: &Document, url: &Url) -> Url {
    let stated = page.select_single("base[href]").attr("href");
    stated
        .and_then(|base| url.join(&base).ok())
        .unwrap_or_else(|| url.clone())
}

/// Makes links absolute, and removes targets that are not addresses of the web.
fn complete_links(page: &Document, base: &Url) {
    for (selector, attribute) in [("a[href]", "href"), ("img[src]", "src")] {
        for element in page.select(selector).nodes() {
            let target = element.attr(attribute).and_then(|target| base.join(&target).ok());
            match target.filter(|target| matches!(target.scheme(), "http" | "https" | "mailto")) {
                Some(target) => element.set_attr(attribute, target.as_str()),
                None => drop_target(element, attribute),
            }
        }
    }
}

/// An image without its address is nothing but its description, which Markdown has no form for.
fn drop_target(element: &NodeRef, attribute: &str) {
    match attribute {
        "src" => element.remove_from_parent(),
        _ => element.remove_attr(attribute),
    }
}

/// The main content, if the page seems to have one.
fn article(page: Document, url: &Url) -> Option<String> {
    let config = Config {
        max_elements_to_parse: MOST_ELEMENTS,
        disable_json_ld: true,
        ..Config::default()
    };
    let all = page.body().map_or(0, |body| body.text().trim().chars().count());
    let article = Readability::with_document(page, Some(url.as_str()), Some(config))
        .ok()?
        .parse()
        .ok()?;
    let found = article.text_content.trim().chars().count();
    (found >= LEAST_ARTICLE || found * 2 >= all).then(|| article.content.to_string())
}

/// At most one empty line in a row, and no white space at the end of a line or of the text.
fn tidy(markdown: &str) -> String {
    let mut tidy = String::with_capacity(markdown.len());
    let mut empty = 0;
    for line in markdown.trim().lines().map(str::trim_end) {
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if empty < 2 {
            tidy.push_str(line);
            tidy.push('\n');
        }
    }
    tidy.truncate(tidy.trim_end().len());
    tidy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markdown(html: &str) -> String {
        let url = Url::parse("https://site.example/docs/page").expect("a URL");
        convert(html, &url).expect("a page").text
    }

    #[test]
    fn hidden_parts_and_scripts_are_left_out() {
        let page = "<title>T</title><h1>Seen</h1><p>Words</p><script>evil()</script><style>p{}</style>\
            <p hidden>secret1</p><p style='display:none'>secret2</p><div aria-hidden=true>secret3</div>\
            <!-- secret4 --><noscript>secret5</noscript><template>secret6</template><p>a\u{200b}b</p>\
            <svg><title>secret7</title></svg><input value=secret8><textarea>secret9</textarea>";
        let text = markdown(page);
        assert!(
            text.contains("# Seen") && text.contains("Words") && text.contains("ab"),
            "{text}"
        );
        assert!(!text.contains("secret") && !text.contains("evil"), "{text}");
    }

    #[test]
    fn the_article_is_found_among_the_rest() {
        let body = "<p>This sentence, which is long enough, belongs to the article, as its words show.</p>".repeat(9);
        let page = format!(
            "<title>News</title><nav><a href=/a>Home</a><a href=/b>Shop</a></nav><article><h2>Head</h2>{body}\
             <p>See <a href='../more?x=1'>more</a>, <a href='javascript:x()'>run</a>.</p><table><tr><th>A<th>B\
             <tr><td>1<td>2</table></article><footer>Imprint and cookies</footer>"
        );
        let text = markdown(&page);
        assert!(text.starts_with("# News\n\n"), "{text}");
        assert!(text.contains("[more](https://site.example/more?x=1)"), "{text}");
        assert!(text.contains("| 1") && !text.contains("javascript"), "{text}");
        assert!(!text.contains("Imprint") && !text.contains("Shop"), "{text}");
    }

    #[test]
    fn a_short_page_is_shown_whole() {
        let text = markdown("<title>Hi</title><h1>Hi</h1><ul><li>one<li>two</ul><pre><code>let a;\n b</code></pre>");
        assert!(text.starts_with("# Hi\n"), "{text}");
        assert!(text.contains("one") && text.contains("```\nlet a;\n b\n```"), "{text}");
        assert_eq!(markdown(""), "");
        assert_eq!(markdown("plain"), "plain");
    }

    #[test]
    fn a_page_as_deep_as_browsers_allow_is_converted() {
        let url = Url::parse("https://site.example/").expect("a URL");
        let page = format!("{}deep{}", "<div>".repeat(500), "</div>".repeat(500));
        let thread = std::thread::Builder::new().stack_size(32 << 20);
        let text = thread
            .spawn(move || convert(&page, &url))
            .expect("a thread")
            .join()
            .expect("no panic");
        assert!(text.expect("a page").text.contains("deep"));
    }
}
