//! A table of text.

/// Rows with their columns aligned.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]], gap: &str) -> String {
    let width = |column: usize| rows.iter().map(|row: &[String; N]| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join(gap).trim_end())
    };
    rows.iter().map(line).collect()
}
