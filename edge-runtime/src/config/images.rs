//! The `images` section: when unused images go.

use serde::{Deserialize, Serialize};

use super::error::{Wrong, wrong};
use super::number::Number;
use crate::image::Reference;

/// When unused images go, in percent of their file system (the kubelet's `imageGCHighThresholdPercent` and
/// `imageGCLowThresholdPercent`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ImagesConfig {
    /// Collection begins at this use; 100 switches it off.
    pub gc_high_percent: Number<u64, 85>,
    /// And ends at this: unless given at 80, or just below where it begins.
    gc_low_percent: Option<u64>,
    /// An image is not removed before it had this much time to be used (`imageMinimumGCAge`).
    pub gc_min_age_seconds: Number<u64, 120>,
    /// Names of images that are never removed, normalized once they are checked.
    pub pinned: Vec<String>,
}

impl ImagesConfig {
    pub fn gc_low_percent(&self) -> u64 {
        self.gc_low_percent.unwrap_or(80.min(self.gc_high_percent.saturating_sub(1)))
    }

    /// Fills in the default that follows from another value.
    pub(super) fn filled(self) -> Self {
        Self { gc_low_percent: Some(self.gc_low_percent()), ..self }
    }

    pub(super) fn check(self) -> Result<Self, Wrong> {
        let (high, low) = (*self.gc_high_percent, self.gc_low_percent());
        if high > 100 {
            return Err(wrong("images.gc-high-percent", format!("{high} is more than 100")));
        }
        if low >= high {
            return Err(wrong("images.gc-low-percent", format!("{low} is not below gc-high-percent, {high}")));
        }
        Ok(Self { pinned: normalized("images.pinned", &self.pinned)?, ..self.filled() })
    }
}

/// Names of images as the node keeps them.
pub(super) fn normalized(key: &str, names: &[String]) -> Result<Vec<String>, Wrong> {
    let one = |name: &String| Reference::parse(name).map(|reference| reference.to_string());
    names.iter().map(|name| one(name).map_err(|error| wrong(key, error.to_string()))).collect()
}
