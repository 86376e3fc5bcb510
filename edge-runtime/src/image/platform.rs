//! Which of an image's builds runs on this machine. Pure; the order follows containerd's `platforms` package.

use crate::image::ImageError;
use crate::image::manifest::{Descriptor, Platform};

/// Builds this machine can run, best first, as (architecture, variant); an empty variant is "not said".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted(Vec<(&'static str, &'static str)>);

impl Wanted {
    /// From the architecture of this binary (`std::env::consts::ARCH`) and the kernel's (`uname -m`),
    /// which alone tells an ARMv6 board from an ARMv7 one.
    pub fn new(arch: &str, machine: &str) -> Self {
        const ARM: [(&str, &str); 5] = [("arm", "v8"), ("arm", "v7"), ("arm", ""), ("arm", "v6"), ("arm", "v5")];
        let arm_from = |first: &'static str| ARM.into_iter().skip_while(move |(_, variant)| *variant != first);
        let list = match arch {
            "aarch64" => [("arm64", "v8"), ("arm64", "")].into_iter().chain(arm_from("v8")).collect(),
            "arm" if machine.starts_with("armv6") => {
                [("arm", "v6"), ("arm", ""), ("arm", "v5")].into_iter().collect::<Vec<_>>()
            }
            "arm" if machine.starts_with("armv7") => arm_from("v7").collect(),
            "arm" => arm_from("v8").collect(),
            "x86_64" => vec![("amd64", ""), ("amd64", "v1"), ("386", "")],
            "x86" => vec![("386", "")],
            "riscv64" => vec![("riscv64", "")],
            "powerpc64" => vec![("ppc64le", "")],
            "s390x" => vec![("s390x", "")],
            _ => Vec::new(),
        };
        Self(list)
    }

    /// The platform of the running machine.
    pub fn here() -> Self {
        let machine = nix::sys::utsname::uname().map(|u| u.machine().to_string_lossy().into_owned());
        Self::new(std::env::consts::ARCH, &machine.unwrap_or_default())
    }

    /// How good a build is here: 0 is best.
    pub fn rank(&self, platform: &Platform) -> Option<usize> {
        if platform.os != "linux" {
            return None;
        }
        let (said, said_variant) = normal(&platform.architecture, &platform.variant);
        self.0.iter().position(|(arch, variant)| said == *arch && said_variant == *variant)
    }

    /// The best build of an index. An entry without a platform is taken last, if it is the only one.
    ///
    /// # Errors
    /// [`ImageError::NoPlatform`] naming what the image offers.
    pub fn select<'a>(&self, index: &'a [Descriptor], image: &str) -> Result<&'a Descriptor, ImageError> {
        let ranked = |d: &Descriptor| d.platform.as_ref().and_then(|p| self.rank(p));
        if let Some((_, best)) = index.iter().filter_map(|d| Some((ranked(d)?, d))).min_by_key(|(rank, _)| *rank) {
            return Ok(best);
        }
        match index {
            [only] if only.platform.is_none() => Ok(only),
            _ => Err(self.missing(image, index.iter().filter_map(|d| d.platform.as_ref()))),
        }
    }

    /// Returns the problem of an image with this platform in its configuration. Another architecture is only a doubt:
    /// vendors' ARM images that were built without buildx often name the build machine's, and run.
    ///
    /// # Errors
    /// [`ImageError::NoPlatform`] for another operating system.
    pub fn check(&self, platform: &Platform, image: &str) -> Result<Option<String>, ImageError> {
        if platform.architecture.is_empty() {
            return Ok(None);
        }
        if platform.os != "linux" {
            return Err(self.missing(image, std::iter::once(platform)));
        }
        // A variant this list does not know (amd64/v3) is a hint of the builder, not another architecture.
        let (named, _) = normal(&platform.architecture, &platform.variant);
        if self.0.iter().any(|(arch, _)| named == *arch) {
            return Ok(None);
        }
        let said = text(&platform.os, &platform.architecture, &platform.variant);
        let here = self.best();
        Ok(Some(format!(
            "says that it is built for {said}, and this node is {here}: if that is true, its programs end with \"exec format error\""
        )))
    }

    fn best(&self) -> String {
        self.0.first().map_or_else(|| "this machine".to_owned(), |(arch, variant)| text("linux", arch, variant))
    }

    fn missing<'a>(&self, image: &str, offered: impl Iterator<Item = &'a Platform>) -> ImageError {
        let mut offers: Vec<String> = offered
            // Build attestations stand in the index as `unknown/unknown`.
            .filter(|p| p.os != "unknown")
            .map(|p| text(&p.os, &p.architecture, &p.variant))
            .collect();
        offers.dedup();
        offers.truncate(16);
        ImageError::NoPlatform {
            image: image.to_owned(),
            wanted: self.best(),
            offered: if offers.is_empty() { "none".to_owned() } else { offers.join(", ") },
        }
    }
}

/// The names of an architecture and a variant that this list has for those of an image: other builders write the kernel's
/// (`aarch64`, containerd's platforms/database.go `normalizeArch`).
fn normal<'a>(arch: &'a str, variant: &'a str) -> (&'a str, &'a str) {
    match (arch, variant) {
        ("x86_64" | "x86-64", variant) => ("amd64", variant),
        ("i386", _) => ("386", ""),
        ("aarch64" | "arm64", "8") => ("arm64", "v8"),
        ("aarch64", variant) => ("arm64", variant),
        ("armhf", _) => ("arm", "v7"),
        ("armel", _) => ("arm", "v6"),
        ("arm", "8") => ("arm", "v8"),
        ("arm", "7") => ("arm", "v7"),
        ("arm", "6") => ("arm", "v6"),
        ("arm", "5") => ("arm", "v5"),
        same => same,
    }
}

fn text(os: &str, arch: &str, variant: &str) -> String {
    match variant {
        "" => format!("{os}/{arch}"),
        variant => format!("{os}/{arch}/{variant}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(builds: &[&str]) -> Vec<Descriptor> {
        builds
            .iter()
            .map(|build| {
                let mut parts = build.split('/');
                let mut next = || parts.next().unwrap_or_default().to_owned();
                let platform = Some(Platform { os: next(), architecture: next(), variant: next() });
                Descriptor { digest: (*build).to_owned(), platform, ..Descriptor::default() }
            })
            .collect()
    }

    #[test]
    fn each_machine_takes_its_best_build() {
        let all = index(&[
            "windows/amd64",
            "unknown/unknown",
            "linux/amd64",
            "linux/arm/v6",
            "linux/arm/v7",
            "linux/arm64/v8",
            "linux/386",
        ]);
        for (arch, machine, best) in [
            ("x86_64", "x86_64", "linux/amd64"),
            ("aarch64", "aarch64", "linux/arm64/v8"),
            ("arm", "armv7l", "linux/arm/v7"),
            ("arm", "armv6l", "linux/arm/v6"),
            ("arm", "aarch64", "linux/arm/v7"),
        ] {
            assert_eq!(Wanted::new(arch, machine).select(&all, "a").unwrap().digest, best, "{arch} {machine}");
        }
    }

    #[test]
    fn names_of_kernels_and_other_builders_are_known() {
        let all = index(&["linux/x86_64", "linux/armhf", "linux/aarch64", "linux/i386"]);
        for (arch, machine, best) in [
            ("x86_64", "x86_64", "linux/x86_64"),
            ("aarch64", "aarch64", "linux/aarch64"),
            ("arm", "armv7l", "linux/armhf"),
            ("x86", "i686", "linux/i386"),
        ] {
            let wanted = Wanted::new(arch, machine);
            let platform = wanted.select(&all, "a").unwrap().platform.clone().unwrap();
            assert_eq!(format!("linux/{}", platform.architecture), best);
            assert_eq!(wanted.check(&platform, "a").unwrap(), None);
        }
        let numbers = index(&["linux/arm/7", "linux/arm64/8"]);
        assert_eq!(Wanted::new("arm", "armv7l").select(&numbers, "a").unwrap().digest, "linux/arm/7");
        assert_eq!(Wanted::new("aarch64", "").select(&numbers, "a").unwrap().digest, "linux/arm64/8");
    }

    #[test]
    fn arm_falls_back_to_older_variants_never_to_newer() {
        let v6 = index(&["linux/arm/v5", "linux/arm/v6"]);
        assert_eq!(Wanted::new("arm", "armv7l").select(&v6, "a").unwrap().digest, "linux/arm/v6");
        assert_eq!(Wanted::new("aarch64", "aarch64").select(&v6, "a").unwrap().digest, "linux/arm/v6");
        let v7 = index(&["linux/arm/v7"]);
        let error = Wanted::new("arm", "armv6l").select(&v7, "reg/app:v1").unwrap_err().to_string();
        assert_eq!(error, "reg/app:v1 has no build for linux/arm/v6; it offers linux/arm/v7");
        assert_eq!(Wanted::new("aarch64", "").select(&index(&["linux/arm64"]), "a").unwrap().digest, "linux/arm64");
    }

    #[test]
    fn wrong_architecture_is_a_doubt_and_not_refused() {
        let wanted = Wanted::new("x86_64", "x86_64");
        let build = |os: &str, arch: &str, variant: &str| Platform {
            os: os.into(),
            architecture: arch.into(),
            variant: variant.into(),
        };
        assert_eq!(wanted.check(&build("linux", "amd64", "v3"), "a").unwrap(), None);
        assert_eq!(wanted.check(&Platform::default(), "a").unwrap(), None);
        let doubt = wanted.check(&build("linux", "arm64", ""), "a").unwrap().unwrap();
        assert!(doubt.contains("built for linux/arm64") && doubt.contains("this node is linux/amd64"), "{doubt}");
        assert!(wanted.check(&build("windows", "amd64", ""), "a").is_err());
    }
}
