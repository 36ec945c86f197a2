//! Tables as kubectl prints them: columns as wide as they need, three spaces between, no lines. Cells may have colours.
//!
//! Where there is a width to keep to, no line is longer: the least needed columns are left out, and the last one is cut or
//! goes on below itself. In a pipe nothing is left out.

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

/// A table with its heading, one line for each row. The last column is not padded.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let widths = widths(heading, rows);
    let heading: Vec<String> = heading.iter().map(|text| (*text).to_owned()).collect();
    let lines = std::iter::once(&heading).chain(rows);
    lines.map(|row| line(&widths, row)).collect()
}

/// A table that keeps to a width, if there is one. Every row has a cell for each column.
pub(crate) fn fitted(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> String {
    let mut columns = columns.to_vec();
    let mut rows = rows.to_vec();
    let Some(width) = width else {
        return table(&headings(&columns), &rows);
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
    table(&headings(&columns), &rows)
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
fn wrapped(columns: &[Column], rows: &[Vec<String>], width: usize, before: usize) -> String {
    let all = widths(&headings(columns), rows);
    let needed = before + all.last().copied().unwrap_or(0);
    if needed <= width {
        return table(&headings(columns), rows);
    }
    let beside = width.saturating_sub(before);
    let heading: Vec<String> = columns.iter().map(|(text, _)| (*text).to_owned()).collect();
    if beside < LEAST {
        let mut text = line(&all, &heading[..heading.len() - 1]);
        for row in rows {
            let (last, first) = row
                .split_last()
                .map_or((String::new(), &row[..]), |(last, first)| (last.clone(), first));
            text.push_str(&line(&all, first));
            for part in wrap(&last, width.saturating_sub(INDENT))
                .iter()
                .filter(|part| !part.is_empty())
            {
                text.push_str(format!("{}{part}", " ".repeat(INDENT)).trim_end());
                text.push('\n');
            }
        }
        return text;
    }
    let mut text = line(&all, &heading);
    for row in rows {
        let (last, first) = row
            .split_last()
            .map_or((String::new(), &row[..]), |(last, first)| (last.clone(), first));
        for (number, part) in wrap(&last, beside).into_iter().enumerate() {
            let cells: Vec<String> = match number {
                0 => first.iter().cloned().chain([part]).collect(),
                _ => first.iter().map(|_| String::new()).chain([part]).collect(),
            };
            text.push_str(&line(&all, &cells));
        }
    }
    text
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

fn widths(heading: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths: Vec<usize> = heading.iter().map(|text| columns_of(text)).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(columns_of(cell));
        }
    }
    widths
}

fn line(widths: &[usize], row: &[String]) -> String {
    let mut text = String::new();
    for (position, (cell, width)) in row.iter().zip(widths).enumerate() {
        text.push_str(cell);
        if position + 1 < row.len() {
            text.push_str(&" ".repeat(width.saturating_sub(columns_of(cell)) + GAP));
        }
    }
    format!("{}\n", text.trim_end())
}

/// Columns on a terminal: the escape sequences of colours take none.
fn columns_of(text: &str) -> usize {
    let mut coloured = text.split('\u{1b}');
    let plain = coloured.next().unwrap_or_default().chars().count();
    let after = |part: &str| part.split_once('m').map_or(0, |(_, rest)| rest.chars().count());
    plain + coloured.map(after).sum::<usize>()
}

#[cfg(test)]
mod tests;
