//! `larder completions`: a script for a shell.

use clap::CommandFactory;

use crate::args::Arguments;
use crate::output;
use crate::printable::Printable;

pub(crate) fn run(shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "larder", &mut script);
    output::print(&Printable::document(&String::from_utf8_lossy(&script)));
}
