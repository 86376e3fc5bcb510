//! The `images` section: when unused images go.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Wrong, wrong};
use crate::image::Reference;

/// As typed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ImagesFile {
    pub gc_high_percent: Option<u64>,
    pub gc_low_percent: Option<u64>,
    pub gc_min_age_seconds: Option<u64>,
    pub pinned: Vec<String>,
}

/// When unused images go, in percent of their file system (the kubelet's `imageGCHighThresholdPercent` and
/// `imageGCLowThresholdPercent`).
#[derive(Clone, Debug)]
pub struct ImagesConfig {
    /// Collection begins at this use; 100 switches it off.
    pub gc_high_percent: u64,
    /// And ends at this.
    pub gc_low_percent: u64,
    /// An image is not removed before it had this much time to be used (`imageMinimumGCAge`).
    pub gc_min_age: Duration,
    /// Normalized names of images that are never removed.
    pub pinned: Vec<String>,
}

impl ImagesConfig {
    pub(super) fn from_file(file: &ImagesFile) -> Result<Self, Wrong> {
        let high = file.gc_high_percent.unwrap_or(85);
        let low = file.gc_low_percent.unwrap_or(80.min(high.saturating_sub(1)));
        if high > 100 {
            return Err(wrong("images.gc-high-percent", format!("{high} is more than 100")));
        }
        if low >= high {
            return Err(wrong("images.gc-low-percent", format!("{low} is not below gc-high-percent, {high}")));
        }
        Ok(Self {
            gc_high_percent: high,
            gc_low_percent: low,
            gc_min_age: Duration::from_secs(file.gc_min_age_seconds.unwrap_or(120)),
            pinned: normalized("images.pinned", &file.pinned)?,
        })
    }
}

/// Names of images as the node keeps them.
pub(super) fn normalized(key: &str, names: &[String]) -> Result<Vec<String>, Wrong> {
    let one = |name: &String| Reference::parse(name).map(|reference| reference.to_string());
    names.iter().map(|name| one(name).map_err(|error| wrong(key, error.to_string()))).collect()
}
