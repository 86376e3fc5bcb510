//! Removing images: by name, and those that nothing uses.

use std::collections::BTreeSet;

use edge_runtime::cli::verb::Given;
use edge_runtime::cli::{CliError, print};
use edge_runtime::image::helper::Helper;
use edge_runtime::image::{ImageError, Reference};
use edge_runtime::intake::{self, Recorded, Restored};
use edge_runtime::paths::Paths;
use edge_runtime::store::image_record::ImageRecord;
use edge_runtime::store::{Store, StoreError};
use k8s_openapi::api::core::v1::Pod;
use sampan_pod::record::ContainerState;
use sampan_pod::spec::containers;

use super::table::size;
use crate::ask;
use crate::doctor::host::Host;
use crate::find;

/// Removes these, unless a container uses them.
pub(super) fn by_name(paths: &Paths, names: &[String]) -> Result<(), ImageError> {
    let mut helper = Helper::begin(paths)?;
    let used = of_containers(paths)?;
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

/// Image ids of the containers that have not ended, as their records have them.
fn of_containers(paths: &Paths) -> Result<BTreeSet<String>, ImageError> {
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

/// Removes the images that no pod of this node names and that are not pinned, after a question.
pub(super) fn unused(given: &Given, paths: &Paths) -> Result<(), CliError> {
    let images = find::store(paths)?.images()?;
    let Some(unused) = choose(&images, || names_in_use(paths), |plan| ask::may_go_on(given, plan))? else {
        return Ok(());
    };
    if unused.is_empty() {
        return print("no image is unused");
    }
    let mut helper = Helper::begin(paths)?;
    let ids: Vec<String> = unused.iter().map(|image| image.id.clone()).collect();
    helper.remove(&ids)?;
    let bytes = unused.iter().fold(0_u64, |sum, image| sum.saturating_add(image.size));
    print(&format!("removed {} images of {} (compressed)", ids.len(), size(bytes)))
}

/// The unused images, if `may` agrees to the plan. A pod may come while a question is open: its images stay.
fn choose(
    images: &[ImageRecord],
    names: impl Fn() -> Result<BTreeSet<String>, CliError>,
    may: impl FnOnce(&str) -> Result<bool, CliError>,
) -> Result<Option<Vec<&ImageRecord>>, CliError> {
    let unused = select(images, &names()?);
    if unused.is_empty() {
        return Ok(Some(unused));
    }
    let lines: String = unused.iter().map(|image| format!("  {}  {}\n", title(image), size(image.size))).collect();
    match may(&format!("Removes images that no pod here uses, also those pulled in advance:\n{lines}"))? {
        true => Ok(Some(select(unused, &names()?))),
        false => Ok(None),
    }
}

fn title(image: &ImageRecord) -> &str {
    image.references.first().unwrap_or(&image.id)
}

/// How pods in the store and the configuration name images.
fn names_in_use(paths: &Paths) -> Result<BTreeSet<String>, CliError> {
    let pods = intake::restore(&find::store(paths)?)?;
    let host = Host::new(paths);
    if let Some(error) = host.config_error {
        return Err(error.into());
    }
    let mut names = names_of_pods(&pods)?;
    names.extend(host.config.into_iter().flat_map(|config| config.images.pinned));
    Ok(names)
}

/// # Errors
/// A pod cannot be read: it may run, and which images it uses is not known.
fn names_of_pods(pods: &Restored) -> Result<BTreeSet<String>, CliError> {
    if let Some((uid, why)) = pods.kept.first_key_value() {
        return Err(CliError::Failed(format!(
            "nothing is removed, because the images of pod {uid} are not known: {why}; images rm IMAGE removes one"
        )));
    }
    let mut names = BTreeSet::new();
    for Recorded { pod, record, .. } in &pods.recorded {
        names.extend(of_spec(pod));
        names.extend(record.containers.values().flat_map(|one| [one.image.clone(), one.image_id.clone()]));
        names.extend(record.image_volumes.values().cloned());
    }
    names.extend(pods.wanted.iter().flat_map(|(pod, _)| of_spec(pod)));
    Ok(names)
}

fn of_spec(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref()?.reference.clone());
    let ephemeral = spec.ephemeral_containers.iter().flatten().filter_map(|one| one.image.clone());
    containers(spec).filter_map(|one| one.image.clone()).chain(volumes).chain(ephemeral).collect()
}

/// The images that none of the names leads to: ids, references with a digest, and names as pods spell them.
fn select<'a>(images: impl IntoIterator<Item = &'a ImageRecord>, names: &BTreeSet<String>) -> Vec<&'a ImageRecord> {
    let full = names.iter().filter_map(|name| Reference::parse(name).ok()).map(|name| name.to_string());
    let full: BTreeSet<String> = full.chain(names.iter().cloned()).collect();
    let is_used =
        |image: &ImageRecord| full.contains(&image.id) || image.references.iter().any(|name| full.contains(name));
    images.into_iter().filter(|image| !is_used(image)).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use edge_runtime::store::image_record::ImageConfig;

    use super::*;

    fn image(id: &str, names: &[&str]) -> ImageRecord {
        ImageRecord {
            id: id.to_owned(),
            references: names.iter().map(|name| (*name).to_owned()).collect(),
            config: ImageConfig::default(),
            layers: Vec::new(),
            size: 1,
            pulled_at: 0,
            access: Default::default(),
        }
    }

    #[test]
    fn image_that_a_pod_takes_during_the_question_stays() {
        let images = [image("sha256:1", &["docker.io/library/a:1"]), image("sha256:2", &["docker.io/library/b:1"])];
        let is_answered = Cell::new(false);
        let names = || -> Result<BTreeSet<String>, CliError> {
            Ok(is_answered.get().then(|| "b:1".to_owned()).into_iter().collect())
        };
        let chosen = choose(&images, names, |plan| {
            assert!(plan.contains("  docker.io/library/a:1  1B\n  docker.io/library/b:1  1B\n"), "{plan}");
            is_answered.set(true);
            Ok(true)
        });
        let ids: Vec<&str> = chosen.unwrap().unwrap().iter().map(|image| image.id.as_str()).collect();
        assert_eq!(ids, ["sha256:1"]);
        assert!(choose(&images, names, |_| Ok(false)).unwrap().is_none());
    }

    #[test]
    fn nothing_is_unused_while_a_pod_cannot_be_read() {
        let mut pods = Restored::default();
        assert!(names_of_pods(&pods).unwrap().is_empty());
        pods.kept.insert("0d9e".into(), "row is damaged".into());
        let refused = names_of_pods(&pods);
        assert!(matches!(refused, Err(CliError::Failed(why)) if why.contains("pod 0d9e") && why.contains("damaged")));
    }

    #[test]
    fn image_is_unused_if_no_pod_names_it_in_any_way() {
        let digest = format!("r:5000/c@sha256:{}", "ab".repeat(32));
        let images = [
            image("sha256:1", &["docker.io/library/a:latest"]),
            image("sha256:2", &["docker.io/library/b:1"]),
            image("sha256:3", &[digest.as_str()]),
            image("sha256:4", &["docker.io/library/d:1"]),
            image("sha256:5", &[]),
        ];
        let names: BTreeSet<String> = ["a", "sha256:2", digest.as_str(), ""].map(str::to_owned).into();
        let ids: Vec<&str> = select(&images, &names).iter().map(|image| image.id.as_str()).collect();
        assert_eq!(ids, ["sha256:4", "sha256:5"]);
    }
}
