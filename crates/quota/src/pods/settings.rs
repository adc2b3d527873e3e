//! Settings of a cluster that every part has to have alike: the size of a chunk, and names of resources.

use crate::MemorySize;

/// The size of a chunk (bytes), as it is typed.
pub fn parse_chunk(text: &str) -> Result<u64, String> {
    const MIB: u64 = 1 << 20;
    let MemorySize(bytes) = text.parse().map_err(|error: crate::ParseError| error.to_string())?;
    if !(16 * MIB..=(64 << 10) * MIB).contains(&bytes) {
        return Err("outside 16 MiB to 64 GiB; write for example 256Mi".to_owned());
    }
    if !bytes.is_multiple_of(MIB) {
        return Err("not whole MiB; write for example 256Mi".to_owned());
    }
    Ok(bytes)
}

/// The name of a resource as Kubernetes writes it: a domain that is not Kubernetes' own, a slash, a name.
pub fn parse_resource_name(text: &str) -> Result<&str, String> {
    let wrong = || Err("not a resource's name; write for example vcuda.io/gpu".to_owned());
    let Some((domain, name)) = text.split_once('/') else {
        return wrong();
    };
    let is_word = |word: &str, most: usize, marks: &str| {
        let is_edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        (1..=most).contains(&word.len())
            && is_edge(word.bytes().next())
            && is_edge(word.bytes().next_back())
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || marks.contains(char::from(byte)))
    };
    let is_lower = !domain.bytes().any(|byte| byte.is_ascii_uppercase());
    if !is_word(domain, 253, "-.") || !is_lower || !is_word(name, 63, "-._") {
        return wrong();
    }
    if domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") {
        return Err("that domain is Kubernetes' own; write for example vcuda.io/gpu".to_owned());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_whole_mib_within_its_bounds() {
        for (text, mib) in [("16Mi", 16), ("17Mi", 17), ("64Gi", 64 << 10)] {
            assert_eq!(parse_chunk(text), Ok(mib << 20), "{text}");
        }
        for text in ["", "many", "15Mi", "0", "65537Mi", "16385Ki"] {
            assert!(parse_chunk(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_name_of_a_resource_is_one_that_kubernetes_accepts() {
        let domain = format!("{}.io", "d".repeat(250));
        let name = "n".repeat(63);
        for text in ["vcuda.io/gpu", "a/b", "x-1.org/A-b_c.d", "notkubernetes.io/gpu"] {
            assert_eq!(parse_resource_name(text), Ok(text));
        }
        let longest = format!("{domain}/{name}");
        assert_eq!(parse_resource_name(&longest), Ok(&*longest));
        for text in [
            "gpu",
            "/gpu",
            "vcuda.io/",
            "-vcuda.io/gpu",
            "vcuda.io-/gpu",
            "vcuda.io/-gpu",
            "vcuda.io/gpu.",
            "Vcuda.io/gpu",
            "vcuda_x.io/gpu",
            "vcuda.io/g/pu",
            "vcuda.io/g pu",
            "kubernetes.io/gpu",
            "x.kubernetes.io/gpu",
            &format!("d{longest}"),
            &format!("{longest}n"),
        ] {
            assert!(parse_resource_name(text).is_err(), "{text}");
        }
    }
}
