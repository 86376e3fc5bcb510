//! From a job to the order of its nodes, or to the errors in the job. Pure.

use std::collections::BTreeMap;

use edge_protocol::message::{self, Order, Work};
use serde_json::Value;

use super::view::{Job, Kind};

/// Names of architectures in jobs.
const ARCHITECTURES: [&str; 3] = ["amd64", "arm64", "arm"];

/// The target nodes of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Targets<'a> {
    Names(Vec<&'a str>),
    /// A `LabelSelector`.
    Selector(&'a Value),
}

impl Targets<'_> {
    /// # Errors
    /// The job has both kinds of targets, or neither.
    pub(super) fn of(job: &Job) -> Result<Targets<'_>, String> {
        let (names, selector) = (&job.spec["nodeNames"], &job.spec["labelSelector"]);
        let names: Vec<&str> = names.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match (names.is_empty(), selector.is_object()) {
            (false, false) => Ok(Targets::Names(names)),
            (true, true) => Ok(Targets::Selector(selector)),
            (false, true) => Err("it has both nodeNames and a labelSelector: say which".to_owned()),
            (true, false) => Err("it has neither nodeNames nor a labelSelector".to_owned()),
        }
    }
}

/// Namespace and name of the Secret for pulling its images.
///
/// # Errors
/// The text is not a name.
pub(super) fn secret(job: &Job) -> Result<Option<(&str, &str)>, String> {
    let Some(text) = job.spec["imageSecrets"].as_str().filter(|text| !text.is_empty() && job.kind == Kind::PrePull)
    else {
        return Ok(None);
    };
    let named = text.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    named.map(Some).ok_or_else(|| format!("imageSecrets {text:?} is no namespace/name of a Secret"))
}

/// The order of its nodes, with this content of its Secret.
///
/// # Errors
/// The errors in the job, in words for users.
pub(super) fn order(job: &Job, secret: Option<&str>) -> Result<Order, String> {
    let work = match job.kind {
        Kind::Upgrade => upgrade(job)?,
        Kind::PrePull => Work::PrePull {
            images: Some(job.images().map(str::to_owned).collect())
                .filter(|images: &Vec<_>| !images.is_empty())
                .ok_or("it names no images")?,
            secrets: secret.map(str::to_owned).into_iter().collect(),
            retry_times: job.spec["retryTimes"]
                .as_u64()
                .and_then(|times| u32::try_from(times).ok())
                .unwrap_or_default(),
        },
        Kind::Configure => Work::Configure {
            fields: Some(texts(&job.spec["updateFields"]))
                .filter(|fields| !fields.is_empty())
                .ok_or("it has no updateFields")?,
        },
    };
    let check_items = job.spec["checkItems"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(Order {
        job: message::Job { kind: job.kind.name().to_owned(), name: job.name.clone(), uid: job.uid.to_string() },
        timeout_seconds: job.timeout_seconds(),
        check_items: check_items.map(str::to_owned).collect(),
        require_confirmation: job.spec["requireConfirmation"].as_bool().unwrap_or_default(),
        confirmed: job.is_confirmed(),
        work,
    })
}

fn upgrade(job: &Job) -> Result<Work, String> {
    let text = |field: &str| job.spec[field].as_str().filter(|text| !text.is_empty());
    let version = text("version").ok_or("it has no version")?.to_owned();
    let image = without_tag(text("image").ok_or("it names no image")?).to_owned();
    let given = texts(&job.spec["imageDigestGatter"]);
    let digests: BTreeMap<String, String> =
        given.into_iter().filter(|(name, text)| ARCHITECTURES.contains(&&**name) && !text.is_empty()).collect();
    if let Some((name, wrong)) = digests.iter().find(|(_, text)| !is_digest(text)) {
        return Err(format!("imageDigestGatter.{name} {wrong:?} is no digest: want sha256: and 64 hexadecimal digits"));
    }
    if digests.is_empty() {
        let fields = ARCHITECTURES.map(|name| format!("imageDigestGatter.{name}")).join(", ");
        return Err(format!("it says no digest of its image ({fields}): nodes take no program by its name alone"));
    }
    Ok(Work::Upgrade { version, image, digests, signatures: job.signatures() })
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    let fields = value.as_object().into_iter().flatten();
    fields.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of an image without its tag, because the digest identifies it.
fn without_tag(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or_default();
    let last = image.rfind('/').map_or(0, |slash| slash + 1);
    image[last..].find(':').map_or(image, |colon| &image[..last + colon])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::view::tests::job;
    use super::*;

    #[test]
    fn an_upgrade_goes_by_digest_and_takes_its_signatures_along() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let spec = json!({"version": "v2", "image": "r.example:5000/a/b:v2@sha256:0", "nodeNames": ["n"], "checkItems": ["disk"],
            "imageDigestGatter": {"arm64": digest, "registryAPI": {"host": "h", "token": "t"}}, "requireConfirmation": true});
        let mut made = job(Kind::Upgrade, spec.clone());
        made.annotations.insert("sampan.dev/signature.arm64".into(), "c2ln".into());
        let order = order(&made, None).unwrap();
        assert!(order.require_confirmation && !order.confirmed && order.timeout_seconds == 300);
        assert_eq!((&*order.job.uid, &*order.job.kind, &*order.check_items[0]), ("u", "NodeUpgradeJob", "disk"));
        let Work::Upgrade { image, digests, signatures, .. } = order.work else { panic!("{:?}", order.work) };
        assert_eq!(
            (&*image, digests.len(), &*digests["arm64"], &*signatures["arm64"]),
            ("r.example:5000/a/b", 1, &*digest, "c2ln")
        );
        for (field, value, why) in [
            ("version", json!(""), "no version"),
            ("image", json!(null), "no image"),
            ("imageDigestGatter", json!({}), "says no digest"),
            ("imageDigestGatter", json!({"arm64": "sha256:12"}), "is no digest"),
            ("imageDigestGatter", json!({"riscv64": digest}), "says no digest"),
        ] {
            let mut wrong = spec.clone();
            wrong[field] = value;
            let said = super::order(&job(Kind::Upgrade, wrong), None).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn images_and_fields_travel_as_they_are() {
        let made = job(Kind::PrePull, json!({"images": ["a:1", "b"], "retryTimes": 2, "imageSecrets": "ns/pull"}));
        assert_eq!(secret(&made), Ok(Some(("ns", "pull"))));
        let order_of = order(&made, Some("{}")).unwrap();
        assert_eq!(
            order_of.work,
            Work::PrePull { images: vec!["a:1".into(), "b".into()], secrets: vec!["{}".into()], retry_times: 2 }
        );
        assert!(order(&job(Kind::PrePull, json!({})), None).unwrap_err().contains("no images"));
        assert!(secret(&job(Kind::PrePull, json!({"imageSecrets": "pull"}))).is_err());
        assert_eq!(secret(&job(Kind::PrePull, json!({"imageSecrets": ""}))), Ok(None));
        let made = job(Kind::Configure, json!({"updateFields": {"logs.max-files": "3"}}));
        let Work::Configure { fields } = order(&made, None).unwrap().work else { panic!() };
        assert_eq!(fields["logs.max-files"], "3");
        assert!(order(&job(Kind::Configure, json!({"updateFields": {}})), None).is_err());
    }

    #[test]
    fn a_job_says_which_nodes_it_means_in_one_way() {
        let of = |spec: Value| {
            let job = job(Kind::Configure, spec);
            Targets::of(&job).map(|targets| format!("{targets:?}"))
        };
        assert!(of(json!({"nodeNames": ["a", "b"]})).unwrap().starts_with("Names"));
        assert!(
            of(json!({"labelSelector": {"matchLabels": {"a": "b"}}, "nodeNames": []})).unwrap().starts_with("Selector")
        );
        assert!(of(json!({"nodeNames": ["a"], "labelSelector": {}})).unwrap_err().contains("both"));
        assert!(of(json!({})).unwrap_err().contains("neither"));
    }

    #[test]
    fn tags_and_digests_are_no_part_of_a_name() {
        for (image, name) in [
            ("a", "a"),
            ("a:1", "a"),
            ("r:5000/a", "r:5000/a"),
            ("r:5000/a:1", "r:5000/a"),
            ("a@sha256:0", "a"),
            ("a:1@sha256:0", "a"),
        ] {
            assert_eq!(without_tag(image), name);
        }
    }
}
