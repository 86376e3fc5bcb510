//! Reading all layers of all images, with progress: a slow card takes minutes for it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use edge_runtime::image::ImageError;
use edge_runtime::image::gc::{Sweep, select_broken};
use edge_runtime::image::helper::Helper;
use edge_runtime::paths::Paths;
use edge_runtime::store::image_record::ImageRecord;

use crate::progress::print::Printer;

/// Ids of the images that have lost something of a layer. Changes nothing.
pub(super) fn damaged(paths: &Paths) -> Result<Vec<String>, ImageError> {
    let helper = Helper::open(paths)?;
    Ok(broken(&helper.images()?, |layer| helper.layers.verify(layer)))
}

/// Forgets the images whose layers have lost something. Returns their ids.
pub(super) fn repair(paths: &Paths) -> Result<Vec<String>, ImageError> {
    let mut helper = Helper::begin(paths)?;
    let images = helper.images()?;
    let broken = broken(&images, |layer| helper.layers.verify(layer));
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

/// Same as [`select_broken`]: reads each layer once, and shows how many are read.
fn broken(images: &[ImageRecord], verify: impl Fn(&str) -> bool) -> Vec<String> {
    let printer = RefCell::new(Printer::new());
    let broken = select_broken_once(images, verify, |done, total| {
        // Without standard error there is still the result.
        let _ = printer.borrow_mut().count("checked layer", done, total);
    });
    let _ = printer.borrow_mut().end();
    broken
}

/// Images may share layers.
fn select_broken_once(
    images: &[ImageRecord],
    verify: impl Fn(&str) -> bool,
    tell: impl Fn(usize, usize),
) -> Vec<String> {
    let known: BTreeMap<&str, Cell<Option<bool>>> =
        images.iter().flat_map(|image| &image.layers).map(|layer| (layer.as_str(), Cell::new(None))).collect();
    let done = Cell::new(0);
    select_broken(images, |layer| {
        let Some(kept) = known.get(layer) else { return verify(layer) };
        kept.get().unwrap_or_else(|| {
            let is_whole = verify(layer);
            kept.set(Some(is_whole));
            done.set(done.get() + 1);
            tell(done.get(), known.len());
            is_whole
        })
    })
}

#[cfg(test)]
mod tests {
    use edge_runtime::store::image_record::ImageConfig;

    use super::*;

    fn image(id: &str, layers: &[&str]) -> ImageRecord {
        ImageRecord {
            id: id.to_owned(),
            references: Vec::new(),
            config: ImageConfig::default(),
            layers: layers.iter().map(|layer| (*layer).to_owned()).collect(),
            size: 1,
            pulled_at: 0,
            access: Default::default(),
        }
    }

    #[test]
    fn shared_layer_is_read_once_and_counted() {
        let images = [image("1", &["base", "a"]), image("2", &["base", "b"]), image("3", &["base"])];
        let (read, told) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let verify = |layer: &str| {
            read.borrow_mut().push(layer.to_owned());
            layer != "b"
        };
        let broken = select_broken_once(&images, verify, |done, total| told.borrow_mut().push((done, total)));
        assert_eq!(broken, ["2"]);
        assert_eq!(*read.borrow(), ["base", "a", "b"]);
        assert_eq!(*told.borrow(), [(1, 3), (2, 3), (3, 3)]);
    }
}
