//! Text of strangers on a terminal: in one line, and in a table.

/// The text with a space for each control character: these begin lines and change the terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
}

/// Rows with their columns aligned.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]], gap: &str) -> String {
    let width = |column: usize| rows.iter().map(|row: &[String; N]| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{:width$}", one_line(cell))).collect();
        format!("{}\n", cells.join(gap).trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_speaks_neither_to_the_terminal_nor_begins_a_line() {
        let rows = [["IMAGE", "ID"], ["a\u{1b}[2J\n\u{9b}", "1"]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows, "  "), "IMAGE    ID\na [2J    1\n");
    }
}
