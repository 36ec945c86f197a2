//! Progress bars, on a terminal alone. A row is a name, a bar and a short text, and fits into 80 columns.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use larder_model::{ByteSize, escape_line};

use crate::output;
use crate::printable::{Printable, Tone};

/// Columns of names; longer ones are cut.
const NAME: usize = 22;

/// Steps of a bar: finer than its characters.
const STEPS: u64 = 1000;

/// A group of bars, one below the other.
pub(crate) struct Bars(MultiProgress);

impl Bars {
    /// None without a terminal.
    pub(crate) fn on_terminal() -> Option<Self> {
        let target = ProgressDrawTarget::stdout();
        output::is_terminal().then(|| Self(MultiProgress::with_draw_target(target)))
    }

    /// One more bar, below the others.
    pub(crate) fn add(&self, name: &str) -> Bar {
        Bar(self.0.add(begun(name)))
    }

    /// One more bar, with this many above it.
    pub(crate) fn insert(&self, above: usize, name: &str) -> Bar {
        Bar(self.0.insert(above, begun(name)))
    }
}

/// A bar that is not shown until it has its place.
fn begun(name: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
    bar.set_style(style(Tone::Good));
    bar.set_prefix(cut(name));
    bar
}

/// How a bar looks.
fn style(tone: Tone) -> ProgressStyle {
    let template = match (output::has_colours(), tone) {
        (false, _) => "{prefix} {bar:24} {msg}",
        (true, Tone::Bad) => "{prefix} {bar:24.red/dim} {msg}",
        (true, _) => "{prefix} {bar:24.green/dim} {msg}",
    };
    // The templates are constant; a bar without its style would still be a bar.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("━╸─")
}

impl Drop for Bars {
    /// What is printed next begins below the bars.
    fn drop(&mut self) {
        output::line("");
    }
}

/// One bar. Clones are the same bar.
#[derive(Clone)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// Shows how far it is, between 0 and 1, and a text.
    pub(crate) fn set(&self, part: f64, text: &str) {
        self.move_to(part);
        self.say(text);
    }

    pub(crate) fn say(&self, text: &str) {
        self.0.set_message(escape_line(text).into_owned());
    }

    pub(crate) fn move_to(&self, part: f64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "between 0 and 1000"
        )]
        let position = (part.clamp(0.0, 1.0) * STEPS as f64) as u64;
        self.0.set_position(position);
    }

    /// It moves no more.
    pub(crate) fn finish(&self, tone: Tone) {
        if self.0.is_finished() {
            return;
        }
        self.0.set_style(style(tone));
        if tone == Tone::Bad {
            let message = Printable::default().painted(tone, &self.0.message());
            self.0.set_message(message.to_string());
        }
        self.0.abandon();
    }
}

/// How many bytes of how many.
pub(crate) fn bytes(done: i64, total: i64) -> String {
    let size = |bytes: i64| ByteSize(u64::try_from(bytes).unwrap_or(0));
    if done == total {
        size(total).to_string()
    } else {
        format!("{} of {}", size(done), size(total))
    }
}

/// A part of a whole, 0 if there is no whole.
pub(crate) fn part(done: i64, total: i64) -> f64 {
    if total <= 0 {
        return 0.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "a bar has a few dozen characters")]
    let part = done as f64 / total as f64;
    part
}

fn cut(name: &str) -> String {
    let name = escape_line(name);
    let count = name.chars().count();
    if count <= NAME {
        return format!("{name:<NAME$}");
    }
    let kept: String = name.chars().take(NAME - 1).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_width() {
        assert_eq!(cut("web"), format!("web{}", " ".repeat(NAME - 3)));
        let long = cut("a-name-that-goes-on-and-on");
        assert_eq!(long, "a-name-that-goes-on-a…");
    }

    #[test]
    fn the_whole_is_said_once() {
        assert_eq!(bytes(1024, 4096), "1.0 KiB of 4.0 KiB");
        assert_eq!(bytes(4096, 4096), "4.0 KiB");
    }
}
