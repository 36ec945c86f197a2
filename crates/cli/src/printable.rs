//! Text that may go to a terminal.
//!
//! What a node, a registry or an API server says is escaped when it enters a [`Printable`], so that the only escape sequences
//! in one are the colours that are added here. `output` accepts nothing else.

use std::fmt;

use larder_model::{escape_line, escape_lines};

use crate::output;

/// What a colour means. None of them is needed to understand the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Strong,
    Faint,
}

impl Tone {
    /// Of the sixteen colours of the terminal's own palette: readable on light and dark.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Strong => "1",
            Tone::Faint => "2",
        }
    }
}

/// Escaped text and colours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Printable(String);

impl Printable {
    /// One line, with its break.
    pub(crate) fn line(text: &str) -> Self {
        Self::default().plain(text).end_line()
    }

    /// A text of several lines that this program has made: a script, a document in JSON or YAML.
    pub(crate) fn document(text: &str) -> Self {
        Self(escape_lines(text).into_owned())
    }

    /// Text within a line.
    pub(crate) fn plain(mut self, text: &str) -> Self {
        self.0.push_str(&escape_line(text));
        self
    }

    /// Text within a line, in a colour where standard output has colours.
    pub(crate) fn painted(mut self, tone: Tone, text: &str) -> Self {
        let text = escape_line(text);
        if output::has_colours() {
            for part in ["\u{1b}[", tone.code(), "m", &text, "\u{1b}[0m"] {
                self.0.push_str(part);
            }
        } else {
            self.0.push_str(&text);
        }
        self
    }

    pub(crate) fn end_line(mut self) -> Self {
        self.0.push('\n');
        self
    }

    /// This text, then another.
    pub(crate) fn then(mut self, next: &Self) -> Self {
        self.0.push_str(&next.0);
        self
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromIterator<Printable> for Printable {
    fn from_iter<I: IntoIterator<Item = Printable>>(parts: I) -> Self {
        Self(parts.into_iter().map(|part| part.0).collect())
    }
}

impl fmt::Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_escape_sequences_are_visible_and_stay_on_their_line() {
        let text = Printable::line("a\u{1b}[2Jb\nnode-2   Succeeded\u{202e}");
        assert_eq!(text.as_str(), "a\\u{1b}[2Jb node-2   Succeeded\\u{202e}\n");
        let text = Printable::default().painted(Tone::Bad, "\u{1b}[32mfine");
        assert_eq!(text.as_str(), "\\u{1b}[32mfine", "no colours in a test's pipe");
    }
}
