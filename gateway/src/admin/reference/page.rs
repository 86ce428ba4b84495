//! What all pages have in common.

/// The first lines of every page.
pub fn begin(title: &str, intro: &str) -> String {
    format!(
        "<!-- Made by `make reference` from the tables in the code: do not edit. -->\n\n# {title}\n\n{intro}\n\n"
    )
}
