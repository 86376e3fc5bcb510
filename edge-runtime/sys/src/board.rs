//! The board's sensors in sysfs, found once and read rarely. A missing sensor is `None`.
#![allow(unsafe_code)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::stat::{major, minor};
use nix::sys::statvfs::{FsFlags, statvfs};

use crate::sort::sort;

/// Without a trip point of its own a board is hot from here: firmware of the usual boards slows down at 80 to 85 °C.
const HOT_MILLI: i64 = 80_000;
/// It is cool again this much below.
const COOL_BY_MILLI: i64 = 5_000;
/// `pre_eol_info` of eMMC (JESD84-B51): 3 means that nine tenths of the spare blocks are used.
const WORN_OUT: &str = "0x03";

/// Files to read.
#[derive(Clone, Debug, Default)]
pub struct Sensors {
    under_voltage: Option<PathBuf>,
    /// Temperature file and the temperature that is too much, in thousandths of a degree.
    zones: Vec<(PathBuf, i64)>,
    ext4_errors: Option<PathBuf>,
    wear: Option<PathBuf>,
    places: Vec<PathBuf>,
}

impl Sensors {
    /// `sysfs` is `/sys`; `places` are folders that must be writable, the first on the medium to watch.
    pub fn find(sysfs: &Path, places: Vec<PathBuf>) -> Self {
        let is_voltage = |folder: &PathBuf| text(&folder.join("name")).as_deref() == Some("rpi_volt");
        let voltage = folders(&sysfs.join("class/hwmon")).into_iter().find(is_voltage);
        let zones = folders(&sysfs.join("class/thermal")).into_iter().filter_map(|zone| {
            let file = zone.join("temp");
            number(&file)?;
            Some((file, too_hot(&zone)))
        });
        let device = places.first().and_then(|place| device(sysfs, place));
        let name = device.as_ref().and_then(|device| device.file_name());
        let ext4_errors = name.map(|name| sysfs.join("fs/ext4").join(name).join("errors_count"));
        // A partition's folder lies in that of its disk.
        let disk = device.as_ref().and_then(|device| {
            let own = device.join("device/pre_eol_info");
            if own.exists() { Some(own) } else { Some(device.parent()?.join("device/pre_eol_info")) }
        });
        Self {
            under_voltage: voltage.map(|folder| folder.join("in0_lcrit_alarm")).filter(|file| file.exists()),
            zones: zones.collect(),
            ext4_errors: ext4_errors.filter(|file| file.exists()),
            wear: disk.filter(|file| file.exists()),
            places,
        }
    }

    pub fn under_voltage(&self) -> Option<bool> {
        Some(number(self.under_voltage.as_ref()?)? != 0)
    }

    /// `was`: the last answer, so that a temperature at the edge does not make it flap.
    pub fn hot(&self, was: bool) -> Option<bool> {
        let margin = if was { COOL_BY_MILLI } else { 0 };
        let hot = |(file, limit): &(PathBuf, i64)| Some(number(file)? >= limit - margin);
        let all: Vec<bool> = self.zones.iter().filter_map(hot).collect();
        (!all.is_empty()).then(|| all.contains(&true))
    }

    /// Returns the problem of the medium, if any.
    pub fn storage_trouble(&self) -> Option<String> {
        for place in &self.places {
            if statvfs(place).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_RDONLY)) {
                return Some(format!(
                    "{} is read-only: the medium may be failing, see the kernel's log",
                    place.display()
                ));
            }
        }
        if self.ext4_errors.as_ref().and_then(|file| number(file)).is_some_and(|errors| errors > 0) {
            return Some("the file system has recorded errors: check it (fsck) and the medium".to_owned());
        }
        let worn = self.wear.as_ref().and_then(|file| text(file)).is_some_and(|level| level == WORN_OUT);
        worn.then(|| "the flash medium is at the end of its life: replace it".to_owned())
    }
}

/// Lowest trip point at which the board acts against heat, if it is a sensible one.
fn too_hot(zone: &Path) -> i64 {
    let trips = (0..16).filter_map(|trip| {
        let kind = text(&zone.join(format!("trip_point_{trip}_type")))?;
        let at = number(&zone.join(format!("trip_point_{trip}_temp")))?;
        (matches!(kind.as_str(), "hot" | "passive") && (60_000..110_000).contains(&at)).then_some(at)
    });
    trips.min().unwrap_or(HOT_MILLI)
}

/// Folder of the block device that holds `place`.
fn device(sysfs: &Path, place: &Path) -> Option<PathBuf> {
    let id = fs::metadata(place).ok()?.dev();
    fs::canonicalize(sysfs.join(format!("dev/block/{}:{}", major(id), minor(id)))).ok()
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    sort(&mut all);
    all
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: &Path) -> Option<i64> {
    text(path)?.parse().ok()
}

/// Whether the kernel considers its clock synchronized. `None` if it does not report that.
pub fn clock_synchronized() -> Option<bool> {
    // SAFETY: timex is plain integers, for which zero is a valid value; modes 0 only reads.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut timex)
    };
    // adjtimex(2): TIME_ERROR means not synchronized; other states are leap second matters.
    (state >= 0).then_some(state != libc::TIME_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn a_pi_has_voltage_and_temperature() {
        let temp = tempfile::tempdir().unwrap();
        let sysfs = temp.path();
        put(sysfs, "class/hwmon/hwmon0/name", "cpu_thermal\n");
        put(sysfs, "class/hwmon/hwmon1/name", "rpi_volt\n");
        put(sysfs, "class/hwmon/hwmon1/in0_lcrit_alarm", "1\n");
        put(sysfs, "class/thermal/thermal_zone0/temp", "79999\n");
        put(sysfs, "class/thermal/cooling_device0/type", "cpufreq\n");
        let id = fs::metadata(sysfs).unwrap().dev();
        let block = format!("dev/block/{}:{}", major(id), minor(id));
        put(sysfs, &format!("{block}/device/pre_eol_info"), "0x01\n");
        let name = block.rsplit('/').next().unwrap();
        put(sysfs, &format!("fs/ext4/{name}/errors_count"), "0\n");
        let sensors = Sensors::find(sysfs, vec![sysfs.to_path_buf()]);
        assert_eq!(
            (sensors.under_voltage(), sensors.hot(false), sensors.hot(true)),
            (Some(true), Some(false), Some(true))
        );
        assert_eq!(sensors.storage_trouble(), None);
        put(sysfs, "class/thermal/thermal_zone0/temp", "80000\n");
        assert_eq!(sensors.hot(false), Some(true));
        put(sysfs, &format!("{block}/device/pre_eol_info"), "0x03\n");
        assert!(sensors.storage_trouble().unwrap().contains("replace"));
        put(sysfs, &format!("fs/ext4/{name}/errors_count"), "2\n");
        assert!(sensors.storage_trouble().unwrap().contains("fsck"));
    }

    #[test]
    fn trip_points_go_before_the_usual_figure() {
        let temp = tempfile::tempdir().unwrap();
        let zone = "class/thermal/thermal_zone0";
        put(temp.path(), &format!("{zone}/temp"), "70000\n");
        for (trip, kind, at) in [(0, "critical", "95000"), (1, "passive", "70000"), (2, "active", "40000")] {
            put(temp.path(), &format!("{zone}/trip_point_{trip}_type"), kind);
            put(temp.path(), &format!("{zone}/trip_point_{trip}_temp"), at);
        }
        assert_eq!(Sensors::find(temp.path(), Vec::new()).hot(false), Some(true));
    }

    #[test]
    fn missing_sensors_are_none() {
        let sensors = Sensors::find(Path::new("/nowhere"), vec![PathBuf::from("/nowhere")]);
        assert_eq!((sensors.under_voltage(), sensors.hot(false), sensors.storage_trouble()), (None, None, None));
        assert!(clock_synchronized().is_some());
    }
}
