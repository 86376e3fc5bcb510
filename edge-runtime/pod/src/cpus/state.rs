//! The file with the assigned CPUs, in the kubelet's form (K8s pkg/kubelet/cm/cpumanager/state/checkpoint.go,
//! `CPUManagerCheckpointV2`), so that tools for a kubelet's `cpu_manager_state` read it. Pure.

use serde_json::{Map, Value, json};

use super::{Assignment, CpuSet};

const POLICY: &str = "static";

/// Content of the file. `held` is sorted, as [`super::add`] keeps it.
pub fn render(shared: &CpuSet, held: &[Assignment]) -> String {
    let mut file = Map::new();
    file.insert("policyName".to_owned(), POLICY.into());
    file.insert("defaultCpuSet".to_owned(), shared.to_string().into());
    if !held.is_empty() {
        let mut entries = Map::new();
        for one in held {
            let of_pod = entries.entry(one.uid.clone()).or_insert_with(|| json!({}));
            if let Value::Object(of_pod) = of_pod {
                of_pod.insert(one.container.clone(), one.cpus.to_string().into());
            }
        }
        file.insert("entries".to_owned(), entries.into());
    }
    file.insert("checksum".to_owned(), checksum(POLICY, shared, held).into());
    Value::Object(file).to_string()
}

/// The shared pool and the assignments.
///
/// # Errors
/// The file is damaged, or another policy's. The text says why.
pub fn parse(file: &[u8]) -> Result<(CpuSet, Vec<Assignment>), String> {
    let value: Value = serde_json::from_slice(file).map_err(|error| error.to_string())?;
    let text = |name: &str| value.get(name).and_then(Value::as_str).ok_or_else(|| format!("{name} is missing"));
    let set = |text: &str| CpuSet::parse(text).ok_or_else(|| format!("'{text}' is not a list of CPUs"));
    let policy = text("policyName")?;
    if policy != POLICY {
        return Err(format!("its policy is '{policy}'"));
    }
    let (shared, mut held) = (set(text("defaultCpuSet")?)?, Vec::new());
    for (uid, containers) in value.get("entries").and_then(Value::as_object).into_iter().flatten() {
        for (container, cpus) in containers.as_object().into_iter().flatten() {
            let cpus = set(cpus.as_str().unwrap_or("?"))?;
            held.push(Assignment { uid: uid.clone(), container: container.clone(), cpus });
        }
    }
    held.sort_by(|a, b| (&a.uid, &a.container).cmp(&(&b.uid, &b.container)));
    // A file without a checksum, or with 0, is accepted as the kubelet does.
    let told = value.get("checksum").and_then(Value::as_u64).unwrap_or(0);
    if told != 0 && told != u64::from(checksum(POLICY, &shared, &held)) {
        return Err("its checksum is wrong".to_owned());
    }
    Ok((shared, held))
}

/// Whether assignments of an earlier start can stay (K8s policy_static.go, `validateState`). `held` is sorted.
///
/// # Errors
/// They cannot. The text says why.
pub fn check(shared: &CpuSet, held: &[Assignment], online: &CpuSet, reserved: &CpuSet) -> Result<(), String> {
    let all = held.iter().fold(*shared, |all, one| all.union(&one.cpus));
    if all != *online {
        return Err(format!("it is for the CPUs {all}, and {online} are online"));
    }
    if !reserved.is_subset(shared) {
        return Err(format!("the reserved CPUs {reserved} are not all in its shared pool {shared}"));
    }
    let mut seen = *shared;
    for pod in held.chunk_by(|a, b| a.uid == b.uid) {
        let own = pod.iter().fold(CpuSet::default(), |own, one| own.union(&one.cpus));
        if pod.iter().any(|one| one.cpus.is_empty()) || !own.intersection(&seen).is_empty() {
            let uid = pod.first().map_or("", |one| one.uid.as_str());
            return Err(format!("it gives the CPUs '{own}' to pod {uid} and to others"));
        }
        seen = seen.union(&own);
    }
    Ok(())
}

/// FNV-1a of the Go value as the kubelet prints it (K8s pkg/util/hash, `DeepHashObject`).
fn checksum(policy: &str, shared: &CpuSet, held: &[Assignment]) -> u32 {
    let pods = held.chunk_by(|a, b| a.uid == b.uid).map(|pod| {
        let containers: Vec<String> = pod.iter().map(|one| format!("{}:{}", one.container, one.cpus)).collect();
        format!("{}:map[{}]", pod.first().map_or("", |one| one.uid.as_str()), containers.join(" "))
    });
    let pods: Vec<String> = pods.collect();
    let text = format!(
        "(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} DefaultCPUSet:(string){shared} \
         Entries:(map[string]map[string]string)map[{}] Checksum:(checksum.Checksum)0}}",
        pods.join(" ")
    );
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::add;
    use super::*;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    fn held(all: &[(&str, &str, &str)]) -> Vec<Assignment> {
        let mut held = Vec::new();
        for (uid, container, cpus) in all {
            let (uid, container) = ((*uid).to_owned(), (*container).to_owned());
            add(&mut held, Assignment { uid, container, cpus: set(cpus) });
        }
        held
    }

    /// Values of K8s pkg/kubelet/cm/cpumanager/state/state_checkpoint_test.go.
    #[test]
    fn checksum_is_the_kubelets() {
        assert_eq!(checksum("none", &set("4-6"), &[]), 354_655_845);
        let two = held(&[("pod", "container2", "1-3"), ("pod", "container1", "4-6")]);
        assert_eq!(checksum("none", &set("1-3"), &two), 3_610_638_499);
    }

    #[test]
    fn written_file_is_read_again() {
        let two = held(&[("u2", "c", "4-5"), ("u1", "b", "2"), ("u1", "a", "1")]);
        let text = render(&set("0,3"), &two);
        let value: Value = serde_json::from_str(&text).unwrap();
        let entries = json!({"u1": {"a": "1", "b": "2"}, "u2": {"c": "4-5"}});
        let checksum = 2_615_667_865_u32;
        let wanted = json!({"policyName": "static", "defaultCpuSet": "0,3", "entries": entries, "checksum": checksum});
        assert_eq!(value, wanted);
        assert_eq!(parse(text.as_bytes()), Ok((set("0,3"), two)));
        assert_eq!(parse(render(&set("0-3"), &[]).as_bytes()), Ok((set("0-3"), Vec::new())));
    }

    #[test]
    fn damaged_files_are_told() {
        let good = render(&set("0,3"), &held(&[("u", "c", "1-2")]));
        for (text, why) in [
            (good.get(..40).unwrap().to_owned(), "EOF"),
            (good.replace("1-2", "1-3"), "checksum"),
            (good.replace("1-2", "two"), "'two' is not a list of CPUs"),
            (good.replace("static", "none"), "its policy is 'none'"),
            (good.replace("defaultCpuSet", "cpus"), "defaultCpuSet is missing"),
            ("[]".to_owned(), "policyName is missing"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn largest_file_is_read_quickly() {
        let containers: Vec<String> = (0..80_000).map(|number| format!(r#""{number}":"1""#)).collect();
        let entries = containers.join(",");
        let text = format!(r#"{{"policyName":"static","defaultCpuSet":"0","entries":{{"u":{{{entries}}}}}}}"#);
        let begun = Instant::now();
        let (shared, held) = parse(text.as_bytes()).unwrap();
        assert_eq!((held.len(), check(&shared, &held, &set("0-1"), &set("0"))), (80_000, Ok(())));
        assert!(begun.elapsed() < Duration::from_secs(10), "the time grows with the square: {:?}", begun.elapsed());
    }

    #[test]
    fn state_must_fit_the_cpus_of_now() {
        let judge = |shared: &str, all: &[(&str, &str, &str)], online: &str| {
            check(&set(shared), &held(all), &set(online), &set("0"))
        };
        let own = [("u", "c", "1-2")];
        assert_eq!(judge("0,3", &own, "0-3"), Ok(()));
        assert_eq!(judge("0,3", &[("u", "init", "1-2"), ("u", "c", "1")], "0-3"), Ok(()), "reused in the pod");
        for (shared, all, online, why) in [
            ("0,3", &own[..], "0-2", "for the CPUs 0-3, and 0-2 are online"),
            ("0,3", &own[..], "0-7", "for the CPUs 0-3, and 0-7 are online"),
            ("3", &[("u", "c", "0-2")][..], "0-3", "reserved CPUs 0 are not all in its shared pool 3"),
            ("0-3", &own[..], "0-3", "gives the CPUs '1-2' to pod u and to others"),
            ("0", &[("u", "c", "1-2"), ("v", "c", "2-3")][..], "0-3", "to others"),
            ("0-3", &[("u", "c", "")][..], "0-3", "gives the CPUs ''"),
        ] {
            let error = judge(shared, all, online).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
