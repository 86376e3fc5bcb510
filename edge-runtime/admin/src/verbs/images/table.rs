//! The images of this node as a table. Pure.

use edge_runtime::image::digest::hex;
use edge_runtime::store::image_record::ImageRecord;
use jiff::Timestamp;

use crate::columns::columns;

/// Names of an image as pods give them; the one with a digest, or none, if it has no other.
pub(super) fn names(image: &ImageRecord) -> Vec<&str> {
    let tagged: Vec<&str> = image.references.iter().map(String::as_str).filter(|name| !name.contains('@')).collect();
    match (tagged.is_empty(), image.references.first()) {
        (false, _) => tagged,
        (true, Some(first)) => vec![first],
        (true, None) => vec!["<none>"],
    }
}

/// Columns as `docker images` has them, one line per name. A wide one has whole ids and the number of layers.
pub(super) fn table(images: &[ImageRecord], now: i64, wide: bool) -> String {
    let mut rows = vec![["REFERENCE", "IMAGE ID", "SIZE", "CREATED", "LAYERS"].map(str::to_owned)];
    for image in images {
        let id: String = hex(&image.id).chars().take(if wide { 64 } else { 12 }).collect();
        let row = |name: &str| {
            let layers = image.layers.len().to_string();
            [name.to_owned(), id.clone(), size(image.size), created(image, now), layers]
        };
        rows.extend(names(image).into_iter().map(row));
    }
    rows[1..].sort();
    if wide {
        return columns(&rows, "   ");
    }
    let narrow: Vec<[String; 4]> = rows.iter().map(|row| std::array::from_fn(|column| row[column].clone())).collect();
    columns(&narrow, "   ")
}

/// Decimal units, as image tools count.
pub(super) fn size(bytes: u64) -> String {
    let units = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{}.{:02}{name}", bytes / unit, bytes % unit * 100 / unit),
        None => format!("{bytes}B"),
    }
}

/// When the image was made; where it does not say, when this node took it in.
fn created(image: &ImageRecord, now: i64) -> String {
    let made = image.config.created.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    // Builders that want the same bytes each time write the epoch.
    match made.map(|made| made.as_second()).filter(|made| *made != 0) {
        Some(made) => age(made, now),
        None => format!("{} (taken in)", age(image.pulled_at, now)),
    }
}

fn age(then: i64, now: i64) -> String {
    let (number, unit) = match now.saturating_sub(then).max(0) {
        s if s < 120 => (s, "seconds"),
        s if s < 7200 => (s / 60, "minutes"),
        s if s < 172_800 => (s / 3600, "hours"),
        s => (s / 86_400, "days"),
    };
    format!("{number} {unit} ago")
}

#[cfg(test)]
mod tests {
    use edge_runtime::store::image_record::ImageConfig;

    use super::*;

    #[test]
    fn the_table_has_a_line_per_name() {
        let record = |id: &str, created: Option<&str>, names: &[&str]| ImageRecord {
            id: format!("sha256:{}", id.repeat(32)),
            references: names.iter().map(|name| (*name).to_owned()).collect(),
            config: ImageConfig { created: created.map(str::to_owned), ..ImageConfig::default() },
            layers: Vec::new(),
            size: 2_140_160,
            pulled_at: 1_767_225_600,
            access: Default::default(),
        };
        let stored = ["docker.io/library/b:1", "docker.io/library/b@sha256:1", "a:2"];
        let images = [
            record("ab", Some("2026-01-01T00:00:00Z"), &stored),
            record("cd", Some("1970-01-01T00:00:00Z"), &["c:1"]),
            record("ef", None, &["d:1"]),
        ];
        let now = "2026-01-04T00:00:01Z".parse::<Timestamp>().unwrap().as_second();
        assert_eq!(
            table(&images, now, false),
            "REFERENCE               IMAGE ID       SIZE     CREATED\n\
             a:2                     abababababab   2.14MB   3 days ago\n\
             c:1                     cdcdcdcdcdcd   2.14MB   3 days ago (taken in)\n\
             d:1                     efefefefefef   2.14MB   3 days ago (taken in)\n\
             docker.io/library/b:1   abababababab   2.14MB   3 days ago\n"
        );
        let wide = table(&images, now, true);
        assert!(wide.contains(&"ab".repeat(32)) && wide.lines().all(|line| !line.ends_with(' ')), "{wide}");
        assert_eq!(names(&images[0]), ["docker.io/library/b:1", "a:2"]);
        assert_eq!((size(999), size(1500)), ("999B".into(), "1.50kB".into()));
    }
}
