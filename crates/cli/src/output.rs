//! The one place that prints. A pipe that closed early (`larder status | head`) is the end of the output, not an error.

use std::io::{IsTerminal, Write};

/// Prints to standard output.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Prints a line to standard output.
pub(crate) fn line(text: &str) {
    print(&format!("{text}\n"));
}

/// Prints a sentence to standard error.
pub(crate) fn error(sentence: &str) {
    let stderr = std::io::stderr();
    let mark = if stderr.is_terminal() {
        "\u{1b}[31merror:\u{1b}[0m"
    } else {
        "error:"
    };
    // Nobody is left to tell if this fails.
    drop(writeln!(stderr.lock(), "{mark} {sentence}"));
}

/// Whether somebody watches, so that bars and colours make sense.
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}
