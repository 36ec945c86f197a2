//! Tables as kubectl prints them: columns as wide as they need, three spaces between, no lines. Cells may have colours.
//!
//! Where there is a width to keep to, no line is longer: the least needed columns are left out, and the last one is cut or
//! goes on below itself. In a pipe nothing is left out. Foreign text in a cell is escaped before anything is measured.

use larder_model::escape_line;

use crate::printable::{Printable, Tone};

const GAP: usize = 3;

/// The last column is not squeezed into less than this.
const LEAST: usize = 24;

/// As little as this is left of it where names are long.
const WORD: usize = 12;

/// What stands below a row because it has no room beside it is moved in by this.
const INDENT: usize = 4;

/// What happens to a column for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrow {
    /// It stays.
    Keep,
    /// It is left out, the one with the lowest number first.
    Drop(u8),
    /// The last one: its texts are cut.
    Cut,
    /// The last one: its texts go on below.
    Wrap,
}

/// A heading, and what happens to its column for which there is no room.
pub(crate) type Column = (&'static str, Narrow);

/// One field of a table, in a colour or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Option<Tone>,
}

impl Cell {
    pub(crate) fn painted(tone: Tone, text: &str) -> Self {
        Self {
            text: escape_line(text).into_owned(),
            tone: Some(tone),
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self {
            text: escape_line(&text).into_owned(),
            tone: None,
        }
    }
}

impl AsRef<str> for Cell {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

/// A table with its heading, one line for each row. The last column is not padded.
pub(crate) fn table(heading: &[&str], rows: &[Vec<Cell>]) -> Printable {
    let widths = widths(heading, rows);
    let heading = line(&widths, &cells(heading));
    std::iter::once(heading)
        .chain(rows.iter().map(|row| line(&widths, row)))
        .collect()
}

fn cells(row: &[impl AsRef<str>]) -> Vec<Cell> {
    row.iter().map(|text| text.as_ref().to_owned().into()).collect()
}

/// A table that keeps to a width, if there is one. Every row has a cell for each column.
pub(crate) fn fitted(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> Printable {
    let mut columns = columns.to_vec();
    let escaped = |row: &Vec<String>| row.iter().map(|cell| escape_line(cell).into_owned()).collect();
    let mut rows: Vec<Vec<String>> = rows.iter().map(escaped).collect();
    let Some(width) = width else {
        return plain_table(&columns, &rows);
    };
    while let Some(position) = too_much(&columns, &rows, width) {
        columns.remove(position);
        for row in &mut rows {
            row.remove(position);
        }
    }
    if columns.last().is_some_and(|(_, narrow)| *narrow == Narrow::Cut) {
        shorten_names(&columns, &mut rows, width);
    }
    let before = before_last(&columns, &rows);
    let room = width.saturating_sub(before);
    let last_is = columns.last().map(|(_, narrow)| *narrow);
    if last_is == Some(Narrow::Wrap) {
        return wrapped(&columns, &rows, width, before);
    }
    if last_is == Some(Narrow::Cut) {
        for cell in rows.iter_mut().filter_map(|row| row.last_mut()) {
            *cell = cut(cell, room);
        }
    }
    plain_table(&columns, &rows)
}

fn plain_table(columns: &[Column], rows: &[Vec<String>]) -> Printable {
    let rows: Vec<Vec<Cell>> = rows.iter().map(|row| cells(row)).collect();
    table(&headings(columns), &rows)
}

/// At most this many columns, with a mark where something is missing.
pub(crate) fn cut(text: &str, room: usize) -> String {
    if columns_of(text) <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// A text in lines of at most this many columns, broken between words where that is possible.
pub(crate) fn wrap(text: &str, room: usize) -> Vec<String> {
    let room = room.max(1);
    let text = escape_line(text);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace().flat_map(|word| pieces(word, room)) {
        let together = columns_of(&line) + 1 + columns_of(&word);
        if line.is_empty() {
            line = word;
        } else if together <= room {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(std::mem::replace(&mut line, word));
        }
    }
    lines.push(line);
    lines
}

/// A word that is longer than a line, such as a digest, is broken anywhere.
fn pieces(word: &str, room: usize) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    letters.chunks(room).map(|piece| piece.iter().collect()).collect()
}

/// The next column to leave out, while the table is too wide and one may go.
fn too_much(columns: &[Column], rows: &[Vec<String>], width: usize) -> Option<usize> {
    let (_, last) = columns.last()?;
    let rest = match last {
        Narrow::Cut => LEAST,
        // It can stand below.
        Narrow::Wrap => return None,
        Narrow::Keep | Narrow::Drop(_) => *widths(&headings(columns), rows).last()?,
    };
    if before_last(columns, rows) + rest <= width {
        return None;
    }
    let droppable = columns
        .iter()
        .enumerate()
        .filter_map(|(position, (_, narrow))| match narrow {
            Narrow::Drop(rank) => Some((*rank, position)),
            Narrow::Keep | Narrow::Cut | Narrow::Wrap => None,
        });
    droppable.min().map(|(_, position)| position)
}

/// When nothing is left to leave out, the longest columns give way, so that something of the last one is seen.
fn shorten_names(columns: &[Column], rows: &mut [Vec<String>], width: usize) {
    for _ in columns {
        let all = widths(&headings(columns), rows);
        let Some((_, first)) = all.split_last() else { return };
        let over = (before_last(columns, rows) + WORD).saturating_sub(width);
        let longest = first.iter().enumerate().max_by_key(|(_, width)| **width);
        let Some((position, longest)) = longest.filter(|(_, longest)| 0 < over && WORD < **longest) else {
            return;
        };
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(position)) {
            *cell = cut(cell, longest.saturating_sub(over).max(WORD));
        }
    }
}

/// The last column goes on below itself; where too little is left for that, below its row.
fn wrapped(columns: &[Column], rows: &[Vec<String>], width: usize, before: usize) -> Printable {
    let all = widths(&headings(columns), rows);
    let needed = before + all.last().copied().unwrap_or(0);
    if needed <= width {
        return plain_table(columns, rows);
    }
    let beside = width.saturating_sub(before);
    let heading = headings(columns);
    let parts = |row: &Vec<String>| -> Printable {
        let (last, first) = row
            .split_last()
            .map_or(("", &row[..]), |(last, first)| (last.as_str(), first));
        if beside < LEAST {
            below(&line(&all, &cells(first)), last, width)
        } else {
            next_to(&all, first, &wrap(last, beside))
        }
    };
    let shown = if beside < LEAST {
        heading.len() - 1
    } else {
        heading.len()
    };
    line(&all, &cells(&heading[..shown])).then(&rows.iter().map(parts).collect())
}

/// A text below its row, moved in.
fn below(row: &Printable, text: &str, width: usize) -> Printable {
    let lines = wrap(text, width.saturating_sub(INDENT));
    let lines = lines.iter().filter(|line| !line.is_empty());
    let indent = " ".repeat(INDENT);
    row.clone()
        .then(&lines.map(|line| Printable::line(&format!("{indent}{line}"))).collect())
}

/// A text in the last column that goes on below itself.
fn next_to(widths: &[usize], first: &[String], text: &[String]) -> Printable {
    let row = |(number, part): (usize, &String)| {
        let cell = |cell: &String| if number == 0 { cell.clone() } else { String::new() };
        let row: Vec<String> = first.iter().map(cell).chain([part.clone()]).collect();
        line(widths, &cells(&row))
    };
    text.iter().enumerate().map(row).collect()
}

fn headings(columns: &[Column]) -> Vec<&'static str> {
    columns.iter().map(|(text, _)| *text).collect()
}

/// Columns that everything but the last column takes, its gap with it.
fn before_last(columns: &[Column], rows: &[Vec<String>]) -> usize {
    let all = widths(&headings(columns), rows);
    let first = all.split_last().map_or(&[][..], |(_, first)| first);
    first.iter().map(|width| width + GAP).sum()
}

fn widths(heading: &[&str], rows: &[Vec<impl AsRef<str>>]) -> Vec<usize> {
    let mut widths: Vec<usize> = heading.iter().map(|text| columns_of(text)).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(columns_of(cell.as_ref()));
        }
    }
    widths
}

fn line(widths: &[usize], row: &[Cell]) -> Printable {
    let used = row.iter().rposition(|cell| !cell.text.trim_end().is_empty());
    let mut text = Printable::default();
    for (position, (cell, width)) in row.iter().zip(widths).enumerate() {
        if used.is_none_or(|used| used < position) {
            break;
        }
        text = match cell.tone {
            Some(tone) => text.painted(tone, &cell.text),
            None => text.plain(&cell.text),
        };
        if used.is_some_and(|used| position < used) {
            text = text.plain(&" ".repeat(width.saturating_sub(columns_of(&cell.text)) + GAP));
        }
    }
    text.end_line()
}

/// Columns on a terminal.
fn columns_of(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests;
