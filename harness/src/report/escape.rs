//! Foreign text in Markdown: no name, label or reason may change the layout.
//!
//! The templates escape by default; `code` and `fence` are for commands and hashes.

use std::fmt::Write as _;

/// Text that Markdown shows as it is, on one line, in a table cell as well.
#[must_use]
pub fn text(raw: &str) -> String {
    let line = one_line(raw);
    // Brackets alone are plain text; `[−1.52, −0.86]` need not be littered.
    let is_link = line.starts_with('[') || line.contains("](") || line.contains("]:");
    let chars: Vec<char> = line.chars().collect();
    let mut out = String::with_capacity(chars.len() + 8);
    for (at, c) in chars.iter().copied().enumerate() {
        let before = at.checked_sub(1).and_then(|i| chars.get(i)).copied();
        let after = chars.get(at + 1).copied();
        let word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        match c {
            '<' => out.push_str("&lt;"),
            '>' if before.is_none() => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // Within a word an underscore means itself: `decode_tok_s` stays readable.
            '_' if word(before) && word(after) => out.push('_'),
            // A heading or a list inside a list item.
            '#' | '-' | '+' if before.is_none() && !word(after) => push_escaped(&mut out, c),
            '[' | ']' if is_link => push_escaped(&mut out, c),
            '\\' | '`' | '*' | '_' | '|' | '~' | '$' => push_escaped(&mut out, c),
            _ => out.push(c),
        }
    }
    out
}

/// A sentence of this program: what stands between backticks is code, all else is
/// text. A name that holds a backtick shifts the borders and is still escaped.
#[must_use]
pub fn prose(raw: &str) -> String {
    let pieces: Vec<&str> = raw.split('`').collect();
    if pieces.len().is_multiple_of(2) {
        return text(raw);
    }
    let mut out = String::with_capacity(raw.len() + 8);
    for (index, piece) in pieces.iter().enumerate() {
        if index % 2 == 1 {
            out.push_str(&code(piece));
            continue;
        }
        // `text` trims; the blanks beside a code span are part of the sentence.
        if index > 0 && piece.starts_with(char::is_whitespace) {
            out.push(' ');
        }
        let escaped = text(piece);
        out.push_str(&escaped);
        if !escaped.is_empty() && piece.ends_with(char::is_whitespace) {
            out.push(' ');
        }
    }
    out
}

/// Inline code. Where backticks cannot hold the text in every place (a `|` in a
/// table, a backtick), it becomes an HTML element with entities.
#[must_use]
pub fn code(raw: &str) -> String {
    let line = one_line(raw);
    if line.trim().is_empty() {
        return String::new();
    }
    if !line.contains(['`', '|']) {
        return format!("`{line}`");
    }
    let mut out = String::from("<code>");
    for c in line.chars() {
        match c {
            '<' | '>' | '&' | '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '~' | '$' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "&#{};", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push_str("</code>");
    out
}

/// A fenced block whose fence is longer than any run of backticks in it.
#[must_use]
pub fn fence(raw: &str, language: &str) -> String {
    let longest = raw
        .split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    let ticks = "`".repeat(longest.max(2) + 1);
    format!("{ticks}{language}\n{}\n{ticks}", raw.trim_end_matches('\n'))
}

/// The text with every run of line breaks and other control characters as one space.
#[must_use]
pub fn one_line(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut gap = false;
    for c in raw.trim().chars() {
        if c.is_control() {
            gap = true;
            continue;
        }
        if gap && !out.ends_with(' ') {
            out.push(' ');
        }
        gap = false;
        out.push(c);
    }
    out
}

fn push_escaped(out: &mut String, c: char) {
    out.push('\\');
    out.push(c);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_and_names_with_underscores_stay_as_they_are() {
        for plain in [
            "decode_tok_s",
            "−1.19 % [x]".trim_end_matches(" [x]"),
            "+0.50 %",
            "a-b c.",
        ] {
            assert_eq!(text(plain), plain);
        }
    }

    #[test]
    fn what_markdown_would_read_is_escaped() {
        assert_eq!(text("a|b"), r"a\|b");
        assert_eq!(text("<b>&amp;"), "&lt;b>&amp;amp;");
        assert_eq!(text("*x* _y_ `z`"), r"\*x\* \_y\_ \`z\`");
        assert_eq!(text("[a](b) $x$ ~~c~~"), r"\[a\](b) \$x\$ \~\~c\~\~");
        assert_eq!(text("# head"), r"\# head");
        assert_eq!(text("- item"), r"\- item");
        assert_eq!(text("two\nlines\r\n\there"), "two lines here");
    }

    #[test]
    fn a_sentence_keeps_its_code_spans() {
        assert_eq!(
            prose("`main` is slower than `base`: a|b."),
            r"`main` is slower than `base`: a\|b."
        );
        assert_eq!(prose("see `a` `b|c`"), "see `a` <code>b&#124;c</code>");
        assert_eq!(prose("one ` only"), r"one \` only");
        assert_eq!(prose("plain *text*"), r"plain \*text\*");
    }

    #[test]
    fn code_holds_any_text_in_any_place() {
        assert_eq!(code("cargo build"), "`cargo build`");
        assert_eq!(code("a | b"), "<code>a &#124; b</code>");
        assert_eq!(code("`x` <y>"), "<code>&#96;x&#96; &#60;y&#62;</code>");
        assert_eq!(code("  "), "");
    }

    #[test]
    fn a_fence_is_longer_than_what_it_holds() {
        assert_eq!(fence("ls\n", "sh"), "```sh\nls\n```");
        assert_eq!(fence("a ```` b", ""), "`````\na ```` b\n`````");
    }
}
