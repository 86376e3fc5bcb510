//! `cloud-bridge page`: prints a login link for the page. Owns the account behind the link, and the text.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::Context;
use apimachinery::meta::rfc3339;
use clap::Args;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::flags::duration;
use crate::info;
use crate::output::{Structured, print};
use crate::pki::NAMESPACE;
use crate::reach::Reach;

/// Name of the service account, of its role, which may list what the page shows, and of the binding of both.
const NAME: &str = "sampan-page";
const GROUP: &str = "rbac.authorization.k8s.io";

/// `page`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    reach: Reach,
    /// Lifetime of the link, at least 10m: 30m, 8h, 1d.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "8h")]
    ttl: Duration,
    /// Address of the page in the link, such as https://bridge.example.com:8443 [default: as the bridge advertises it].
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Print link, expiry and authority in this form.
    #[arg(long, short, value_enum, value_name = "FORM")]
    output: Option<Structured>,
}

/// Creates the account where it is missing, and prints a link with a new token of it.
///
/// # Errors
/// The bridge has no page, or the API refuses an object or the token.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let (client, _) = options.reach.running().await?;
    let about = info::known(&client).await?;
    let url = options.url.or(about.page).context("the bridge serves no page: start it with --page ADDRESS:PORT")?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    ensure(&accounts, json!({"metadata": {"name": NAME}})).await?;
    let (roles, rules) = (Api::<ClusterRole>::all(client.clone()), rules());
    ensure(&roles, json!({"metadata": {"name": NAME}, "rules": rules})).await?;
    // An older version may have made it, with fewer rights.
    let patched = roles.patch(NAME, &PatchParams::default(), &Patch::Merge(json!({ "rules": rules }))).await;
    patched.with_context(|| format!("changing clusterrole {NAME}, the rights of login links"))?;
    let binding = json!({
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    });
    ensure(&Api::<ClusterRoleBinding>::all(client), binding).await?;
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"expirationSeconds": options.ttl.as_secs()}}))?;
    let answer = accounts.create_token_request(NAME, &PostParams::default(), &request).await;
    let answer = answer.with_context(|| format!("creating a token of serviceaccount {NAMESPACE}/{NAME}"))?;
    // The API may give it a shorter life than was asked for.
    let given = answer.status.and_then(|status| status.token.zip(status.expiration_timestamp));
    let (token, end) = given.context("the API answered without a token and its end")?;
    let (link, expires) = (link(&url, &token), rfc3339(end.0));
    print(&match options.output {
        Some(form) => form.text(&json!({"link": link, "expires": expires, "authority": about.authority}))?,
        None => printed(&link, &about.authority, &expires),
    })
}

/// The part after `#` is not sent to servers (RFC 9110, section 7.1).
fn link(url: &str, token: &str) -> String {
    format!("{}/#token={token}", url.trim_end_matches('/'))
}

/// What the page shows: nodes, devices, and the CPU and memory of nodes and pods.
fn rules() -> Value {
    let shown = [
        ("", &["nodes"][..]),
        ("devices.kubeedge.io", &["devices", "devicestatuses"]),
        ("metrics.k8s.io", &["nodes", "pods"]),
    ];
    shown.iter().map(|(group, all)| json!({"apiGroups": [group], "resources": all, "verbs": ["list"]})).collect()
}

/// Creates the object unless one of its name exists.
async fn ensure<K>(api: &Api<K>, object: Value) -> anyhow::Result<()>
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    match api.create(&PostParams::default(), &serde_json::from_value(object)?).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(drop).with_context(|| format!("creating {NAME}, the account of login links")),
    }
}

/// The link stands alone in the first line, for scripts. `end`: when its token expires.
fn printed(link: &str, authority: &str, end: &str) -> String {
    format!(
        "{link}\n\nOpen it in a browser until {end}: it shows all nodes and devices to anyone who has it.\n\
         SHA-256 of the certificate authority: {authority}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_is_the_first_line() {
        for url in ["https://a:1", "https://a:1/"] {
            let text = printed(&link(url, "t.o-k_en"), "ab12", "2030-01-01T00:00:00Z");
            assert_eq!(text.lines().next(), Some("https://a:1/#token=t.o-k_en"));
            assert!(text.contains("until 2030-01-01T00:00:00Z") && text.contains("ab12"), "{text}");
        }
    }
}
