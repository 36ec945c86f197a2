//! The one place that prints. A pipe that closed early (`larder status | head`) is the end of the output, not an error.
//! Colours are for terminals, unless they are switched off.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use larder_model::{escape_json, escape_line};
use serde::Serialize;

use crate::args::Format;
use crate::failure::{Failure, chain};
use crate::printable::Printable;
use crate::yaml;

static NO_COLOR: AtomicBool = AtomicBool::new(false);

/// Prints no colours from now on.
pub(crate) fn without_colours() {
    NO_COLOR.store(true, Ordering::Relaxed);
}

/// Whether standard output gets colours.
pub(crate) fn has_colours() -> bool {
    is_terminal() && !NO_COLOR.load(Ordering::Relaxed)
}

/// Prints to standard output.
pub(crate) fn print(text: &Printable) {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_str().as_bytes());
    if written.and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Prints a line to standard output.
pub(crate) fn line(text: &str) {
    print(&Printable::line(text));
}

/// Prints a value as JSON or YAML; as a table, what `table` makes of it.
pub(crate) fn value(format: Format, value: &impl Serialize, table: impl FnOnce() -> Printable) -> Result<(), Failure> {
    match format {
        Format::Table => print(&table()),
        Format::Json => {
            let json = serde_json::to_string_pretty(value).map_err(|error| Failure::wrong(chain(&error)))?;
            print(&Printable::document(&escape_json(&json)).end_line());
        }
        Format::Yaml => {
            print(&Printable::document(&yaml::to_string(value)?));
        }
    }
    Ok(())
}

/// Prints a sentence to standard error.
pub(crate) fn error(sentence: &str) {
    let stderr = std::io::stderr();
    let mark = if stderr.is_terminal() && !NO_COLOR.load(Ordering::Relaxed) {
        "\u{1b}[31merror:\u{1b}[0m"
    } else {
        "error:"
    };
    // There is no other place to report that this failed.
    drop(writeln!(stderr.lock(), "{mark} {}", escape_line(sentence)));
}

/// Prints something to standard error that is good to know and no error.
pub(crate) fn note(sentence: &str) {
    drop(writeln!(std::io::stderr().lock(), "note: {}", escape_line(sentence)));
}

/// How many columns there are; none in a pipe, which has no width.
pub(crate) fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout)
        .ok()
        .filter(|_| stdout.is_terminal())?;
    // A terminal that does not tell has none that could be kept to.
    Some(usize::from(size.ws_col)).filter(|columns| 0 < *columns)
}

/// Whether standard output is a terminal, which can show bars and colours.
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}
