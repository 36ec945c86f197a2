//! Tables as kubectl prints them: columns as wide as they need, three spaces between, no lines. Cells may have colours.

const GAP: usize = 3;

/// A table with its heading, one line for each row. The last column is not padded.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heading.iter().map(|text| columns(text)).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(columns(cell));
        }
    }
    let heading: Vec<String> = heading.iter().map(|text| (*text).to_owned()).collect();
    let lines = std::iter::once(&heading).chain(rows);
    lines.map(|row| line(&widths, row)).collect()
}

fn line(widths: &[usize], row: &[String]) -> String {
    let mut text = String::new();
    for (position, (cell, width)) in row.iter().zip(widths).enumerate() {
        if position + 1 == row.len() {
            text.push_str(cell);
        } else {
            text.push_str(cell);
            text.push_str(&" ".repeat(width.saturating_sub(columns(cell)) + GAP));
        }
    }
    format!("{}\n", text.trim_end())
}

/// Columns on a terminal: the escape sequences of colours take none.
fn columns(text: &str) -> usize {
    let mut coloured = text.split('\u{1b}');
    let plain = coloured.next().unwrap_or_default().chars().count();
    let after = |part: &str| part.split_once('m').map_or(0, |(_, rest)| rest.chars().count());
    plain + coloured.map(after).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_take_no_room() {
        assert_eq!(columns("\u{1b}[32mgreen\u{1b}[0m!"), 6);
    }

    #[test]
    fn columns_are_as_wide_as_they_need() {
        let rows = [
            vec!["a".into(), "10".into(), String::new()],
            vec!["long-name".into(), "2".into(), "said".into()],
        ];
        let text = table(&["NAME", "NODES", "MESSAGE"], &rows);
        assert_eq!(
            text,
            "NAME        NODES   MESSAGE\na           10\nlong-name   2       said\n"
        );
    }
}
