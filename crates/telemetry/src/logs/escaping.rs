//! The last step of every log line: what a registry, a runtime or a node said cannot act on the terminal that shows the log,
//! and cannot begin a line of its own.

use std::io::{self, Write};

use larder_model::{escape_json, escape_line};
use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

use super::LogFormat;

/// Escapes everything that is written through the writers of `inner`.
pub(super) struct Escaping<M> {
    pub(super) inner: M,
    pub(super) format: LogFormat,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Escaping<M> {
    type Writer = EscapingWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        EscapingWriter {
            inner: self.inner.make_writer(),
            format: self.format,
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        EscapingWriter {
            inner: self.inner.make_writer_for(metadata),
            format: self.format,
        }
    }
}

/// Takes one whole event with each write, as the formatter of `tracing-subscriber` hands it over.
pub(super) struct EscapingWriter<W> {
    inner: W,
    format: LogFormat,
}

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = match self.format {
            LogFormat::Text => escape_line(line),
            LogFormat::Json => escape_json(line),
        };
        self.inner.write_all(format!("{line}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
