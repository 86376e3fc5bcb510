//! Probes and lifecycle hooks, and their common handlers.

use serde_json::Value;

use apimachinery::field::{Errors, FieldError, invalid_number, invalid_text, not_negative};
use apimachinery::json::{integer, items, present, text};
use apimachinery::names;

/// `livenessProbe`, `readinessProbe` and `startupProbe` of one container.
pub(crate) fn probes(errors: &mut Errors, path: &str, container: &Value, grace: Option<i64>) {
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = present(container, kind) else { continue };
        let path = format!("{path}.{kind}");
        common(errors, &path, probe, grace);
        if kind == "readinessProbe" {
            if let Some(seconds) = present(probe, "terminationGracePeriodSeconds") {
                errors.push(FieldError::invalid(
                    format!("{path}.terminationGracePeriodSeconds"),
                    seconds,
                    "must not be set for readinessProbes",
                ));
            }
        } else if integer(probe, "successThreshold").unwrap_or_default() != 1 {
            let threshold = integer(probe, "successThreshold").unwrap_or_default();
            errors.push(FieldError::invalid(format!("{path}.successThreshold"), &threshold.into(), "must be 1"));
        }
    }
}

fn common(errors: &mut Errors, path: &str, probe: &Value, grace: Option<i64>) {
    handler(errors, path, probe, &["exec", "httpGet", "tcpSocket", "grpc"], grace);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        not_negative(errors, format!("{path}.{field}"), integer(probe, field).unwrap_or_default());
    }
    if let Some(seconds) = integer(probe, "terminationGracePeriodSeconds").filter(|s| *s <= 0) {
        let path = format!("{path}.terminationGracePeriodSeconds");
        errors.push(FieldError::invalid(path, &seconds.into(), "must be greater than 0"));
    }
}

/// `lifecycle` of one container; `os` is `spec.os.name`.
pub(crate) fn lifecycle(errors: &mut Errors, path: &str, container: &Value, grace: Option<i64>, os: Option<&str>) {
    let Some(lifecycle) = present(container, "lifecycle") else { return };
    let path = format!("{path}.lifecycle");
    for hook in ["postStart", "preStop"] {
        if let Some(action) = present(lifecycle, hook) {
            handler(errors, &format!("{path}.{hook}"), action, &["exec", "httpGet", "tcpSocket", "sleep"], grace);
        }
    }
    if let Some(signal) = present(lifecycle, "stopSignal").and_then(Value::as_str) {
        let path = format!("{path}.stopSignal");
        match os {
            None => errors.push(FieldError::forbidden(path, "may not be set for containers with empty `spec.os.name`")),
            Some("linux") if !is_linux_signal(signal) => {
                let all = linux_signals();
                let all: Vec<&str> = all.iter().map(String::as_str).collect();
                errors.push(FieldError::not_supported(path, &signal.into(), &all));
            }
            Some(_) => {}
        }
    }
}

fn handler(errors: &mut Errors, path: &str, holder: &Value, kinds: &[&str], grace: Option<i64>) {
    let mut found = 0;
    for kind in kinds {
        let Some(action) = present(holder, kind) else { continue };
        let path = format!("{path}.{kind}");
        found += 1;
        if found > 1 {
            errors.push(FieldError::forbidden(path, "may not specify more than 1 handler type"));
            continue;
        }
        match *kind {
            "exec" if items(action, "command").is_empty() => {
                errors.push(FieldError::required(format!("{path}.command"), ""));
            }
            "httpGet" => http_get(errors, &path, action),
            "tcpSocket" | "grpc" => port(errors, &format!("{path}.port"), &action["port"]),
            "sleep" => sleep(errors, path, integer(action, "seconds").unwrap_or_default(), grace),
            _ => {}
        }
    }
    if found == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn http_get(errors: &mut Errors, path: &str, action: &Value) {
    if text(action, "path").is_empty() {
        errors.push(FieldError::required(format!("{path}.path"), ""));
    }
    port(errors, &format!("{path}.port"), &action["port"]);
    let scheme = text(action, "scheme");
    if !["HTTP", "HTTPS"].contains(&scheme) {
        errors.push(FieldError::not_supported(format!("{path}.scheme"), &scheme.into(), &["HTTP", "HTTPS"]));
    }
    for header in items(action, "httpHeaders") {
        let name = text(header, "name");
        invalid_text(errors, &format!("{path}.httpHeaders"), name, names::http_header_name(name));
    }
}

fn sleep(errors: &mut Errors, path: String, seconds: i64, grace: Option<i64>) {
    if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.push(FieldError::invalid(path, &seconds.into(), &detail));
    }
}

/// A port by number or by name.
pub(crate) fn port(errors: &mut Errors, path: &str, port: &Value) {
    match port {
        Value::String(name) => invalid_text(errors, path, name, names::port_name(name)),
        other => {
            let number = other.as_i64().unwrap_or_default();
            invalid_number(errors, path, number, names::port_number(number));
        }
    }
}

const SIGNALS: &[&str] = &[
    "ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL", "PIPE", "POLL",
    "PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1",
    "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
];

fn linux_signals() -> Vec<String> {
    let mut all: Vec<String> = SIGNALS.iter().map(|s| format!("SIG{s}")).collect();
    all.extend((1..=15).map(|n| format!("SIGRTMIN+{n}")));
    all.extend((1..=14).map(|n| format!("SIGRTMAX-{n}")));
    all.extend(["SIGRTMIN".to_owned(), "SIGRTMAX".to_owned()]);
    all.sort();
    all
}

fn is_linux_signal(signal: &str) -> bool {
    linux_signals().iter().any(|s| s == signal)
}
