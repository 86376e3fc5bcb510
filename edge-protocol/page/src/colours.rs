//! Colours of style sheets: a sheet uses only the named ones of `page.css`, and these have the contrast that WCAG 2.2 AA
//! asks for.

/// Properties whose value is a colour.
const COLOURED: [&str; 5] = ["color", "background", "fill", "stroke", "border-color"];

/// A declaration of a colour that has no name, and so was not tested for contrast. For the tests of those who serve
/// files.
#[must_use]
pub fn nameless_colour(css: &str) -> Option<&str> {
    let is_named = |value: &str| value.starts_with("var(--") || matches!(value, "none" | "inherit");
    css.split(['{', '}', ';']).map(str::trim).find(|declaration| {
        let parts = declaration.split_once(": ");
        parts.is_some_and(|(name, value)| COLOURED.contains(&name) && !is_named(value))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const CSS: &str = include_str!("page.css");
    /// Grounds on which everything is.
    const GROUNDS: [&str; 3] = ["--back", "--raised", "--chosen"];
    /// Colours of text, also of small text (1.4.3).
    const TEXTS: [&str; 5] = ["--text", "--muted", "--good", "--bad", "--warn"];
    /// Colours of the frame of what has the focus, and of edges of buttons, fields and bars (1.4.11).
    const LINES: [&str; 2] = ["--focus", "--muted"];

    /// The colours of the light theme and of the dark one, by name.
    fn themes() -> [HashMap<&'static str, &'static str>; 2] {
        let mut blocks = CSS.split(":root {").skip(1).filter_map(|rest| rest.split('}').next());
        std::array::from_fn(|_| {
            let declarations = blocks.next().unwrap().split(';').filter_map(|one| one.trim().split_once(": "));
            declarations.filter(|(name, value)| name.starts_with("--") && value.starts_with('#')).collect()
        })
    }

    /// Relative luminance of `#rrggbb` (WCAG 2.2, terms).
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn contrast_is_that_of_the_guidelines() {
        assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
        assert!((contrast("#ffffff", "#777777") - 4.48).abs() < 0.005, "just too low for text");
    }

    #[test]
    fn colours_have_enough_contrast_in_both_themes() {
        for theme in themes() {
            for (names, least) in [(&TEXTS[..], 4.5), (&LINES[..], 3.0)] {
                for (name, ground) in names.iter().flat_map(|name| GROUNDS.map(|ground| (*name, ground))) {
                    let found = contrast(theme[name], theme[ground]);
                    assert!(found >= least, "{name} on {ground}: {found:.2}");
                }
            }
        }
        let [light, dark] = themes();
        assert!(luminance(light["--back"]) > luminance(dark["--back"]));
    }

    #[test]
    fn sheet_uses_only_named_colours() {
        assert_eq!(nameless_colour(CSS), None);
        assert_eq!(nameless_colour("a { margin: 0; color: #abcdef; }"), Some("color: #abcdef"));
        assert_eq!(nameless_colour("a { border-color: red }"), Some("border-color: red"));
    }
}
