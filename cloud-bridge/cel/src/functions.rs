//! Functions and methods that rules may call: the libraries of Kubernetes 1.36, as far as the CEL library has them.

use std::collections::HashMap;
use std::rc::Rc;

use crate::types::Type;

/// Result, name with the receiver's type in front of a method, arguments. `T` is any one type.
const SIGNATURES: &[&str] = &[
    // The language's own (cel-spec, "List of Standard Definitions").
    "int size(string)",
    "int size(bytes)",
    "int size(list)",
    "int size(map)",
    "int string.size()",
    "int bytes.size()",
    "int list.size()",
    "int map.size()",
    "bool string.contains(string)",
    "bool string.startsWith(string)",
    "bool string.endsWith(string)",
    "bool string.matches(string)",
    "bool matches(string,string)",
    "bool bool(string)",
    "bool bool(bool)",
    "bytes bytes(string)",
    "bytes bytes(bytes)",
    "double double(string)",
    "double double(int)",
    "double double(uint)",
    "double double(double)",
    "int int(string)",
    "int int(int)",
    "int int(uint)",
    "int int(double)",
    "int int(timestamp)",
    "uint uint(string)",
    "uint uint(int)",
    "uint uint(uint)",
    "uint uint(double)",
    "string string(string)",
    "string string(int)",
    "string string(uint)",
    "string string(double)",
    "string string(bool)",
    "string string(bytes)",
    "string string(duration)",
    "string string(timestamp)",
    "string string(ip)",
    "string string(cidr)",
    "timestamp timestamp(string)",
    "timestamp timestamp(int)",
    "timestamp timestamp(timestamp)",
    "duration duration(string)",
    "duration duration(duration)",
    "dyn dyn(dyn)",
    "int timestamp.getFullYear()",
    "int timestamp.getMonth()",
    "int timestamp.getDate()",
    "int timestamp.getDayOfMonth()",
    "int timestamp.getDayOfWeek()",
    "int timestamp.getDayOfYear()",
    "int timestamp.getHours()",
    "int timestamp.getMinutes()",
    "int timestamp.getSeconds()",
    "int timestamp.getMilliseconds()",
    "int duration.getHours()",
    "int duration.getMinutes()",
    "int duration.getSeconds()",
    "int duration.getMilliseconds()",
    // Optional values.
    "optional(T) optional.of(T)",
    "optional(T) optional.ofNonZeroValue(T)",
    "optional optional.none()",
    "bool optional.hasValue()",
    "T optional(T).value()",
    "T optional(T).orValue(T)",
    "optional(T) optional(T).or(optional(T))",
    // Strings, in the version of Kubernetes.
    "string string.charAt(int)",
    "int string.indexOf(string)",
    "int string.indexOf(string,int)",
    "int string.lastIndexOf(string)",
    "int string.lastIndexOf(string,int)",
    "string list(string).join()",
    "string list(string).join(string)",
    "string string.lowerAscii()",
    "string string.upperAscii()",
    "string string.trim()",
    "string strings.quote(string)",
    "string string.replace(string,string)",
    "string string.replace(string,string,int)",
    "list(string) string.split(string)",
    "list(string) string.split(string,int)",
    "string string.substring(int)",
    "string string.substring(int,int)",
    "string string.format(list)",
    // Lists and sets.
    "bool list.isSorted()",
    "T list(T).sum()",
    "T list(T).min()",
    "T list(T).max()",
    "int list(T).indexOf(T)",
    "int list(T).lastIndexOf(T)",
    "bool sets.contains(list(T),list(T))",
    "bool sets.equivalent(list(T),list(T))",
    "bool sets.intersects(list(T),list(T))",
    // Regular expressions.
    "string string.find(string)",
    "list(string) string.findAll(string)",
    "list(string) string.findAll(string,int)",
    // URLs.
    "url url(string)",
    "bool isURL(string)",
    "string url.getScheme()",
    "string url.getHost()",
    "string url.getHostname()",
    "string url.getPort()",
    "string url.getEscapedPath()",
    "map(string,list(string)) url.getQuery()",
    // Quantities.
    "quantity quantity(string)",
    "bool isQuantity(string)",
    "bool quantity.isInteger()",
    "int quantity.asInteger()",
    "double quantity.asApproximateFloat()",
    "int quantity.sign()",
    "quantity quantity.add(quantity)",
    "quantity quantity.add(int)",
    "quantity quantity.sub(quantity)",
    "quantity quantity.sub(int)",
    "bool quantity.isLessThan(quantity)",
    "bool quantity.isGreaterThan(quantity)",
    "int quantity.compareTo(quantity)",
    // Addresses.
    "ip ip(string)",
    "bool isIP(string)",
    "bool ip.isCanonical(string)",
    "int ip.family()",
    "bool ip.isUnspecified()",
    "bool ip.isLoopback()",
    "bool ip.isLinkLocalMulticast()",
    "bool ip.isLinkLocalUnicast()",
    "bool ip.isGlobalUnicast()",
    "cidr cidr(string)",
    "bool isCIDR(string)",
    "bool cidr.containsIP(string)",
    "bool cidr.containsIP(ip)",
    "bool cidr.containsCIDR(string)",
    "bool cidr.containsCIDR(cidr)",
    "ip cidr.ip()",
    "cidr cidr.masked()",
    "int cidr.prefixLength()",
    // Named formats.
    "optional(format) format.named(string)",
    "format format.dns1123Label()",
    "format format.dns1123Subdomain()",
    "format format.dns1035Label()",
    "format format.dns1123LabelPrefix()",
    "format format.dns1123SubdomainPrefix()",
    "format format.dns1035LabelPrefix()",
    "format format.qualifiedName()",
    "format format.labelValue()",
    "format format.uri()",
    "format format.uuid()",
    "format format.byte()",
    "format format.date()",
    "format format.datetime()",
    "optional(list(string)) format.validate(string)",
    // Versions.
    "semver semver(string)",
    "semver semver(string,bool)",
    "bool isSemver(string)",
    "bool isSemver(string,bool)",
    "bool semver.isLessThan(semver)",
    "bool semver.isGreaterThan(semver)",
    "int semver.compareTo(semver)",
    "int semver.major()",
    "int semver.minor()",
    "int semver.patch()",
];

/// First words of names that are not receivers: `sets.contains(a, b)`.
pub(crate) const NAMESPACES: [&str; 5] = ["sets", "strings", "optional", "format", "ip"];

/// One way to call a function.
pub(crate) struct Overload {
    pub(crate) receiver: Option<Type>,
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
}

/// All functions by name, those of a namespace with it.
pub(crate) type Functions = HashMap<&'static str, Vec<Overload>>;

/// Reads the table.
pub(crate) fn table() -> Functions {
    let mut functions = Functions::new();
    for signature in SIGNATURES {
        let Some((result, rest)) = signature.split_once(' ') else { continue };
        let Some((name, arguments)) = rest.rsplit_once(')').and_then(|(rest, _)| split_call(rest)) else { continue };
        let arguments = arguments_of(arguments).into_iter().map(type_of).collect();
        let overload = |receiver| Overload { receiver, arguments, result: type_of(result) };
        match name.rsplit_once('.') {
            None => functions.entry(name).or_default().push(overload(None)),
            Some((space, method)) if namespaced(space, method) => {
                functions.entry(name).or_default().push(overload(None));
            }
            Some((receiver, method)) => functions.entry(method).or_default().push(overload(Some(type_of(receiver)))),
        }
    }
    functions
}

/// `optional`, `format` and `ip` are types too: their methods are distinguished from their functions by name.
fn namespaced(space: &str, method: &str) -> bool {
    match space {
        "sets" | "strings" => true,
        "optional" => matches!(method, "of" | "none" | "ofNonZeroValue"),
        "ip" => method == "isCanonical",
        "format" => method != "validate",
        _ => false,
    }
}

/// Name and arguments of `name(arguments`; the name may contain parentheses: `list(string).join(`.
fn split_call(text: &str) -> Option<(&str, &str)> {
    let start = text.find(").").map_or(0, |at| at + 1);
    let at = start + text.get(start..)?.find('(')?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// Arguments between commas outside parentheses.
fn arguments_of(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut found) = (0_i32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                found.extend(text.get(from..at));
                from = at + 1;
            }
            _ => {}
        }
    }
    found.extend(text.get(from..).filter(|last| !last.is_empty()));
    found
}

fn type_of(text: &'static str) -> Type {
    let inner = |text: &'static str| arguments_of(text).into_iter().map(type_of).collect::<Vec<_>>();
    if let Some((name, rest)) = text.split_once('(') {
        let parts = inner(rest.strip_suffix(')').unwrap_or(rest));
        return match (name, parts.as_slice()) {
            ("list", [item]) => Type::List(Rc::new(item.clone())),
            ("optional", [value]) => Type::Optional(Rc::new(value.clone())),
            ("map", [key, value]) => Type::Map(Rc::new(key.clone()), Rc::new(value.clone())),
            _ => Type::Dyn,
        };
    }
    match text {
        "T" => Type::Parameter,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "list" => Type::List(Rc::new(Type::Dyn)),
        "map" => Type::Map(Rc::new(Type::Dyn), Rc::new(Type::Dyn)),
        "optional" => Type::Optional(Rc::new(Type::Dyn)),
        "dyn" => Type::Dyn,
        library => Type::Library(library),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_whole() {
        let functions = table();
        let count: usize = functions.values().map(Vec::len).sum();
        assert_eq!(count, SIGNATURES.len());
        let join = functions.get("join").unwrap();
        assert_eq!(join[0].receiver, Some(Type::List(Rc::new(Type::String))));
        let query = &functions.get("getQuery").unwrap()[0];
        assert_eq!(query.result.to_string(), "map(string, list(string))");
        assert_eq!(functions.get("sets.contains").unwrap()[0].arguments.len(), 2);
    }
}
