//! `edge-runtime images`: the images on this node, and what an administrator does to them.

use std::collections::BTreeSet;

use edge_runtime::cli::verb::{Flag, Given, JSON, Operands, Verb};
use edge_runtime::cli::{CliError, print};
use edge_runtime::image::digest::hex;
use edge_runtime::image::gc::{Sweep, select_broken};
use edge_runtime::image::helper::Helper;
use edge_runtime::image::{ImageError, Reference};
use edge_runtime::paths::Paths;
use edge_runtime::store::image_record::ImageRecord;
use edge_runtime::store::{Store, StoreError};
use jiff::Timestamp;
use sampan_pod::record::ContainerState;

use crate::columns::columns;
use crate::find;

pub(super) const VERB: Verb = Verb {
    name: "images",
    about: "List images of this node",
    operands: Operands::None,
    flags: &[
        JSON,
        Flag::switch("verify", "read every layer again and remove what is damaged"),
        Flag::value("remove", "IMAGE", "remove it, unless a container uses it"),
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let remove: Vec<String> = given.all("remove")?;
    edge_runtime::cli::start_log();
    let paths = given.paths()?;
    if given.has("verify") {
        let broken = verify_all(&paths)?;
        return print(&match broken.as_slice() {
            [] => "every layer is whole".to_owned(),
            ids => format!("removed, to be pulled again: {}", ids.join(" ")),
        });
    }
    if !remove.is_empty() {
        return Ok(remove_all(&paths, &remove)?);
    }
    let images = list(&paths)?;
    let text = match given.has(JSON.long) {
        true => serde_json::to_string_pretty(&images)?,
        false => table(&images, Timestamp::now().as_second()),
    };
    print(text.trim_end())
}

fn list(paths: &Paths) -> Result<Vec<ImageRecord>, CliError> {
    // Listing must not create a node's state where there is none.
    match find::has_run(paths)? {
        true => Ok(Store::open_shared(&paths.store())?.images()?),
        false => Ok(Vec::new()),
    }
}

/// Walks every layer and forgets the images whose layers lost something.
fn verify_all(paths: &Paths) -> Result<Vec<String>, ImageError> {
    let mut helper = Helper::begin(paths)?;
    let images = helper.images()?;
    let broken = select_broken(&images, |layer| helper.layers.verify(layer));
    let lock = helper.layers.lock()?;
    for layer in images.iter().filter(|image| broken.contains(&image.id)).flat_map(|image| &image.layers) {
        if !helper.layers.verify(layer) {
            helper.layers.retire(layer)?;
        }
    }
    drop(lock);
    helper.forget(&broken)?;
    helper.sweep(Sweep::USUAL)?;
    Ok(broken)
}

fn remove_all(paths: &Paths, names: &[String]) -> Result<(), ImageError> {
    let mut helper = Helper::begin(paths)?;
    let used = used_images(paths)?;
    let mut ids = Vec::new();
    for name in names {
        let fail = |why: &str| ImageError::Broken { image: name.clone(), what: "image".into(), why: why.into() };
        let by_name = || helper.known(&Reference::parse(name).ok()?.to_string());
        let image = helper.known(name).or_else(by_name).ok_or_else(|| fail("is not on this node"))?;
        if used.contains(&image.id) || used.contains(image.image_id()) {
            return Err(fail("is in use by a container"));
        }
        ids.push(image.id);
    }
    helper.remove(&ids)
}

/// What this node's pods are made from, as their records name it.
fn used_images(paths: &Paths) -> Result<BTreeSet<String>, ImageError> {
    let broken = |error: StoreError| ImageError::Broken {
        image: "all images".into(),
        what: "pods that may use them".into(),
        why: error.to_string(),
    };
    let (pods, _) = Store::open_shared(&paths.store()).and_then(|store| store.pods()).map_err(broken)?;
    let containers = pods.into_iter().flat_map(|pod| pod.record.containers.into_values());
    let present = containers.filter(|container| !matches!(container.state, ContainerState::Terminated(_)));
    Ok(present.map(|container| container.image_id).collect())
}

/// Columns as `docker images` has them; one line per name.
fn table(images: &[ImageRecord], now: i64) -> String {
    let mut rows = vec![["REFERENCE", "IMAGE ID", "SIZE", "CREATED"].map(str::to_owned)];
    for image in images {
        let id: String = hex(&image.id).chars().take(12).collect();
        let created = created(image, now);
        let mut names: Vec<&str> =
            image.references.iter().map(String::as_str).filter(|name| !name.contains('@')).collect();
        if names.is_empty() {
            names.push(image.references.first().map_or("<none>", String::as_str));
        }
        rows.extend(names.into_iter().map(|name| [name.to_owned(), id.clone(), size(image.size), created.clone()]));
    }
    rows[1..].sort();
    columns(&rows, "   ")
}

/// Decimal units, as image tools count.
fn size(bytes: u64) -> String {
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
        let names = ["docker.io/library/b:1", "docker.io/library/b@sha256:1", "a:2"];
        let images = [
            record("ab", Some("2026-01-01T00:00:00Z"), &names),
            record("cd", Some("1970-01-01T00:00:00Z"), &["c:1"]),
            record("ef", None, &["d:1"]),
        ];
        let now = "2026-01-04T00:00:01Z".parse::<Timestamp>().unwrap().as_second();
        assert_eq!(
            table(&images, now),
            "REFERENCE               IMAGE ID       SIZE     CREATED\n\
             a:2                     abababababab   2.14MB   3 days ago\n\
             c:1                     cdcdcdcdcdcd   2.14MB   3 days ago (taken in)\n\
             d:1                     efefefefefef   2.14MB   3 days ago (taken in)\n\
             docker.io/library/b:1   abababababab   2.14MB   3 days ago\n"
        );
        assert_eq!((size(999), size(1500)), ("999B".into(), "1.50kB".into()));
    }
}
