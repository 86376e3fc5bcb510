//! `edge-runtime devices`: devices behind this node and their values, asked of the helper that speaks with them, with or without
//! a cloud or a daemon.

mod plugins;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use edge_runtime::cli::{CliError, print};
use edge_runtime::paths::Paths;
use sampan_devices_control::{FromHelper, MAX_LINE, Named, Question, ToHelper};
use serde_json::Value;

use crate::columns::columns;
use crate::output::{Form, JSON, OUTPUT};
use crate::takes;

const NAMESPACE: Flag = Flag::value("namespace", "NAMESPACE", "namespace of the device").short('n');

pub(super) const VERB: Verb = Verb {
    name: "devices",
    about: "List devices of this node, or get and set their values",
    operands: Operands::Words("[get|watch|set|history|mappers|plugins] [NAMESPACE/DEVICE] [PROPERTY[=VALUE]]"),
    flags: &[NAMESPACE, OUTPUT, JSON],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let (words, form) = (words(&given)?, Form::of(&given)?);
    if words == ["plugins"] {
        takes::only(&given, VERB.flags, "devices plugins", &["output", "json"])?;
        return plugins::run(&given.paths()?, form);
    }
    let namespace = given.one::<String>("namespace")?.unwrap_or_else(|| "default".to_owned());
    let question = question(&words.iter().map(String::as_str).collect::<Vec<_>>(), &namespace)?;
    let names_no_device =
        matches!(question, Question::Mappers {} | Question::Get { device: None } | Question::Watch { device: None });
    if names_no_device {
        takes::only(&given, VERB.flags, "devices without NAMESPACE/DEVICE", &["output", "json"])?;
    }
    if let Some((own, _)) = words.get(1).and_then(|device| device.split_once('/'))
        && given.has("namespace")
        && own != namespace
    {
        return Err(CliError::Usage(format!("the device is in namespace {own}, not in that of --namespace")));
    }
    let watch = matches!(question, Question::Watch { .. });
    let table = match question {
        Question::Mappers {} => mappers,
        Question::History { .. } => history,
        _ => table,
    };
    let mut answers = ask(&given.paths()?.devices(), question)?;
    loop {
        let answer = answers.next()?;
        if !watch {
            return form.print(&answer, |_| table(&answer), || names(&answer));
        }
        match form {
            Form::Json | Form::Yaml => print(&form.next(&answer)?)?,
            _ => form.print(&answer, |_| table(&answer), || names(&answer))?,
        }
    }
}

fn words(given: &Given) -> Result<Vec<String>, CliError> {
    let word = |word: &std::ffi::OsString| {
        word.clone().into_string().map_err(|word| CliError::Usage(format!("{}: not UTF-8", word.display())))
    };
    given.operands.iter().map(word).collect()
}

/// What the words mean; a device without a namespace is of `namespace`.
fn question(words: &[&str], namespace: &str) -> Result<Question, CliError> {
    let named = |text: &str| {
        let (namespace, name) = text.split_once('/').unwrap_or((namespace, text));
        Named { namespace: namespace.into(), name: name.into() }
    };
    match words {
        [] | ["get"] => Ok(Question::Get { device: None }),
        ["get", device] => Ok(Question::Get { device: Some(named(device)) }),
        ["watch"] => Ok(Question::Watch { device: None }),
        ["watch", device] => Ok(Question::Watch { device: Some(named(device)) }),
        ["set", device, wish] => match wish.split_once('=') {
            Some((property, value)) => {
                Ok(Question::Set { device: named(device), property: property.to_owned(), value: value.to_owned() })
            }
            None => Err(CliError::Usage(format!("devices set: {wish:?} is no PROPERTY=VALUE"))),
        },
        ["history", device] => Ok(Question::History { device: named(device), property: None }),
        ["history", device, property] => {
            Ok(Question::History { device: named(device), property: Some((*property).to_owned()) })
        }
        ["mappers"] => Ok(Question::Mappers {}),
        _ => Err(CliError::Usage(
            "devices: get [DEVICE], watch [DEVICE], set DEVICE PROPERTY=VALUE, history DEVICE [PROPERTY], mappers or plugins"
                .to_owned(),
        )),
    }
}

/// Answers of the helper.
struct Answers(BufReader<UnixStream>);

fn ask(socket: &Path, question: Question) -> Result<Answers, CliError> {
    let mut stream = sampan_sys::socket::connect(socket).map_err(|error| {
        CliError::Failed(format!("{}: {error}; is device-twin in config.yaml, and the node started?", socket.display()))
    })?;
    for line in [ToHelper::Client {}, ToHelper::Ask { id: 1, question }] {
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        stream.write_all(&text)?;
    }
    Ok(Answers(BufReader::new(stream)))
}

impl Answers {
    fn next(&mut self) -> Result<Value, CliError> {
        loop {
            let mut line = Vec::new();
            let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
            self.0.by_ref().take(limit).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Err(CliError::Failed("the helper for devices has ended".to_owned()));
            }
            if let FromHelper::Answer { answer, .. } = serde_json::from_slice(&line)? {
                return answer.map_err(CliError::Failed);
            }
        }
    }
}

/// `NAMESPACE/NAME` of each device, or the names of mappers. An answer about one device is not a list.
fn names(answer: &Value) -> Vec<String> {
    let one = std::slice::from_ref(answer);
    let all = answer.as_array().map_or(one, Vec::as_slice).iter();
    all.filter_map(|object| match (object["namespace"].as_str(), object["name"].as_str()?) {
        (Some(namespace), name) => Some(format!("{namespace}/{name}")),
        (None, name) => Some(name.to_owned()),
    })
    .collect()
}

/// All devices, as other words of this verb name them.
pub(crate) fn all_names(paths: &Paths) -> Result<Vec<String>, CliError> {
    Ok(names(&ask(&paths.devices(), Question::Get { device: None })?.next()?))
}

/// A line for each property.
fn table(devices: &Value) -> String {
    let mut rows = vec![["DEVICE", "STATE", "PROPERTY", "DESIRED", "REPORTED", "TOLD"].map(str::to_owned)];
    for device in devices.as_array().into_iter().flatten() {
        let text = |field: &str| device[field].as_str().filter(|text| !text.is_empty()).unwrap_or("-").to_owned();
        let name = format!("{}/{}", text("namespace"), text("name"));
        let properties = device["properties"].as_array().map(Vec::as_slice).unwrap_or_default();
        if properties.is_empty() {
            rows.push([name.clone(), text("state"), "-".into(), "-".into(), "-".into(), "-".into()]);
        }
        for property in properties {
            let value = |field: &str| property[field]["value"].as_str().map(one_line);
            let desired = match (value("local"), value("desired")) {
                (Some(local), _) => format!("{local} (here)"),
                (None, desired) => desired.unwrap_or_else(|| "-".to_owned()),
            };
            let reported = value("reported").unwrap_or_else(|| "-".to_owned());
            let told = match (&property["told"], reported.as_str()) {
                (_, "-") => "-",
                (Value::Bool(true), _) => "yes",
                _ => "no",
            };
            let property = one_line(property["name"].as_str().unwrap_or("-"));
            rows.push([name.clone(), text("state"), property, desired, reported, told.to_owned()]);
        }
    }
    columns(&rows, "   ")
}

/// A line for each mapper.
fn mappers(mappers: &Value) -> String {
    let mut rows = vec![["MAPPER", "PROTOCOL", "SOCKET", "DEVICES", "WAITING", "STATE", "POD"].map(str::to_owned)];
    for mapper in mappers.as_array().into_iter().flatten() {
        let text = |field: &str| one_line(mapper[field].as_str().filter(|text| !text.is_empty()).unwrap_or("-"));
        let number = |field: &str| mapper[field].as_u64().unwrap_or_default().to_string();
        let state = match (mapper["replaced"].as_bool(), mapper["answers"].as_bool()) {
            (Some(true), _) => "replaced",
            (_, Some(false)) => "takes no calls",
            _ => "ok",
        };
        let [name, protocol, socket, pod] = ["name", "protocol", "socket", "pod"].map(text);
        rows.push([name, protocol, socket, number("devices"), number("waiting"), state.to_owned(), pod]);
    }
    columns(&rows, "   ")
}

/// A line for each change, oldest first; a time of a clock that was not set has a `?`.
fn history(device: &Value) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut rows = vec![["TIME", "PROPERTY", "VALUE"].map(str::to_owned)];
    for property in list(&device["properties"]) {
        rows.extend(list(&property["changes"]).iter().map(|change| {
            let [at, value] = ["at", "value"].map(|field| one_line(change[field].as_str().unwrap_or("-")));
            let unsure = if change["unsynchronized"] == true { "?" } else { "" };
            [at + unsure, one_line(property["name"].as_str().unwrap_or("-")), value]
        }));
    }
    columns(&rows, "   ")
}

/// Devices and mappers say what they like.
fn one_line(text: &str) -> String {
    let mut short: String = text.chars().take(60).map(|one| if one.is_control() { '?' } else { one }).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests;
