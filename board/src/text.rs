//! Text from elsewhere, keys, values and errors, made fit to be shown: bounded, and with nothing in it that is invisible.
//! The HTML library escapes it after this.

use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Writes something of the user's type `T`.
pub(crate) type Format<T> = dyn Fn(&T, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync;

/// The most bytes of a text in a table.
pub(crate) const IN_TABLE: usize = 160;
/// The most bytes of a text on the page of one key or letter, and of a key that is searched.
pub(crate) const WHOLE: usize = 64 * 1024;

/// The same on a page that is not a table, where its lines are lines.
pub(crate) const LINES: usize = WHOLE + 1;

/// Calls a formatter as a `Display`.
struct Formatted<'a, T>(&'a T, &'a Format<T>);

impl<T> fmt::Display for Formatted<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.1)(self.0, f)
    }
}

/// Collects a text up to a number of bytes, and then fails, so that no more is written.
struct Beginning {
    text: String,
    most: usize,
    is_cut: bool,
}

impl Write for Beginning {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let mut end = more.len().min(self.most - self.text.len());
        while !more.is_char_boundary(end) {
            end -= 1;
        }
        self.text.push_str(&more[..end]);
        self.is_cut |= end < more.len();
        match self.is_cut {
            true => Err(fmt::Error),
            false => Ok(()),
        }
    }
}

/// Returns the text of a value as it is shown, with `…` if there is more. A formatter that panics or fails does not get further
/// than this.
pub(crate) fn shown<T>(of: &T, format: &Format<T>, most: usize) -> String {
    let mut beginning = Beginning {
        text: String::new(),
        most,
        is_cut: false,
    };
    let written = catch_unwind(AssertUnwindSafe(|| {
        write!(beginning, "{}", Formatted(of, format))
    }));
    match written {
        Err(_) => beginning.text.push_str("(its text panicked)"),
        Ok(Err(_)) if !beginning.is_cut => beginning.text.push_str("(its text failed)"),
        Ok(_) => {}
    }
    let Beginning { text, is_cut, .. } = beginning;
    let mut shown = match most {
        LINES => text.split('\n').map(visible).collect::<Vec<_>>().join("\n"),
        _ => visible(&text),
    };
    if is_cut {
        shown.push('…');
    }
    shown
}

/// Returns the beginning of a text as it is shown.
pub(crate) fn cut(text: &str, most: usize) -> String {
    shown(
        &text,
        &|text: &&str, f: &mut fmt::Formatter<'_>| f.write_str(text),
        most,
    )
}

/// Whether a text has another one, in any case. `text` is as it is shown, and so may be what is searched for, which somebody
/// has copied from the page.
pub(crate) fn finds(search: &str, text: &str) -> bool {
    if search.is_ascii() && text.contains(search) {
        return true;
    }
    let text = text.to_lowercase();
    let shown = visible(search).to_lowercase();
    text.contains(&search.to_lowercase()) || text.contains(&shown)
}

/// Writes characters that would not be seen, or would change the order of those around them, as `\u{..}`.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            _ if is_hidden(char) => shown.extend(char.escape_unicode()),
            _ => shown.push(char),
        }
    }
    shown
}

/// Controls, separators of lines, and what Unicode calls Default_Ignorable_Code_Point: marks of direction, and characters without a
/// width or a shape.
fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(char,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_invisible_is_written_out() {
        assert_eq!(
            cut("a\u{202e}b\0\n\t\u{200b}ü", 99),
            "a\\u{202e}b\\u{0}\\n\\t\\u{200b}ü"
        );
        assert_eq!(
            cut("a\u{34f}\u{3164}\u{fe0f}\u{e0100}b", 99),
            "a\\u{34f}\\u{3164}\\u{fe0f}\\u{e0100}b"
        );
        assert_eq!(cut("<b>", 99), "<b>"); // escaping is the library's
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_not_written_further() {
        let long =
            |_: &(), f: &mut fmt::Formatter<'_>| (0..1_000_000).try_for_each(|_| f.write_str("éé"));
        assert_eq!(shown(&(), &long, 5), "éé…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "abc…");
        assert!(shown(&(), &long, LINES).ends_with("é…"));
    }

    #[test] // X2
    fn a_text_is_found_as_it_is_and_as_it_is_shown_in_any_case() {
        let shown = cut("Line1\nLine2 \u{202e}gnp ÄRGER", 99);
        for search in [
            "line1\n",
            "Line1\\nLine2",
            "\u{202e}g",
            "\\U{202E}GNP",
            "ärger",
            "",
        ] {
            assert!(finds(search, &shown), "{search:?}");
        }
        assert!(!finds("line3", &shown));
    }

    #[test]
    fn a_text_that_panics_or_fails_says_so() {
        let panics = |_: &(), _: &mut fmt::Formatter<'_>| panic!("in a test");
        assert_eq!(shown(&(), &panics, 99), "(its text panicked)");
        let fails = |_: &(), _: &mut fmt::Formatter<'_>| Err(fmt::Error);
        assert_eq!(shown(&(), &fails, 99), "(its text failed)");
    }
}
