//! PTX text: kernels with their parameters, and module-scope variables (PTX ISA, "Directives").

use super::{GlobalInfo, Image, KernelInfo, Parameter};

/// Parses a PTX module; `None` for text without the directives that begin every module.
pub(super) fn parse(text: &str) -> Option<Image> {
    let tokens = tokens(text);
    let mut image = Image { architecture: target(&tokens)?, ..Image::default() };
    tokens.contains(&".version").then_some(())?;
    let mut at = 0;
    let mut depth = 0_usize;
    while let Some(&token) = tokens.get(at) {
        at += 1;
        match token {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            ".entry" if depth == 0 => {
                let (kernel, next) = entry(&tokens, at)?;
                image.kernels.push(kernel);
                at = next;
            }
            ".global" | ".const" if depth == 0 => {
                let (global, next) = variable(&tokens, at)?;
                // Another module's variable has no memory here.
                if !is_extern(&tokens, at) {
                    image.globals.push(global);
                }
                at = next;
            }
            _ => {}
        }
    }
    (depth == 0).then_some(image)
}

/// Words and single punctuation marks, without comments; strings are one token.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if let Some(comment) = rest.strip_prefix("//") {
            2 + comment.find('\n').unwrap_or(comment.len())
        } else if let Some(comment) = rest.strip_prefix("/*") {
            2 + comment.find("*/").map_or(comment.len(), |end| end + 2)
        } else if let Some(string) = rest.strip_prefix('"') {
            1 + string.find('"').map_or(string.len(), |end| end + 1)
        } else if is_word(first) {
            rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        if !first.is_whitespace() && !token.starts_with("//") && !token.starts_with("/*") {
            tokens.push(token);
        }
        rest = after;
    }
    tokens
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '$' | '.' | '%')
}

/// Architecture number in `.target`: 80 for `.target sm_80`.
fn target(tokens: &[&str]) -> Option<u32> {
    let at = tokens.iter().position(|token| *token == ".target")?;
    let digits =
        tokens.get(at + 1)?.strip_prefix("sm_").or_else(|| tokens.get(at + 1)?.strip_prefix("compute_"))?;
    digits.trim_end_matches(|letter: char| !letter.is_ascii_digit()).parse().ok()
}

fn is_extern(tokens: &[&str], at: usize) -> bool {
    at >= 2 && tokens.get(at - 2) == Some(&".extern")
}

/// Parses a kernel from behind `.entry` to the end of its body.
fn entry(tokens: &[&str], mut at: usize) -> Option<(KernelInfo, usize)> {
    let mut kernel = KernelInfo {
        name: (*tokens.get(at)?).to_owned(),
        parameters: Some(Vec::new()),
        ..KernelInfo::default()
    };
    at += 1;
    if tokens.get(at) == Some(&"(") {
        let (parameters, next) = parameters(tokens, at)?;
        kernel.parameters = Some(parameters);
        at = next;
    }
    let mut depth = 0_usize;
    while let Some(&token) = tokens.get(at) {
        at += 1;
        match token {
            "{" => depth += 1,
            "}" if depth == 1 => return Some((kernel, at)),
            "}" => depth = depth.checked_sub(1)?,
            // A forward declaration.
            ";" if depth == 0 => return Some((kernel, at)),
            ".maxntid" | ".reqntid" => {
                kernel.max_threads = tokens
                    .get(at..)?
                    .iter()
                    .take_while(|token| **token == "," || token.parse::<u32>().is_ok())
                    .filter_map(|token| token.parse::<u32>().ok())
                    .fold(1, u32::saturating_mul);
            }
            ".shared" | ".local" => {
                // In a declaration a type follows; in instructions the word has a prefix.
                if let Some((declared, next)) = declaration(tokens, at) {
                    let bytes = u32::try_from(declared.bytes).ok()?;
                    let sum =
                        if token == ".shared" { &mut kernel.shared_bytes } else { &mut kernel.local_bytes };
                    *sum = sum
                        .next_multiple_of(u32::try_from(declared.align.max(1)).ok()?)
                        .saturating_add(bytes);
                    at = next;
                }
            }
            _ => {}
        }
    }
    None
}

/// Parses the parameter list, with offsets by alignment. Returns also the position behind it.
fn parameters(tokens: &[&str], mut at: usize) -> Option<(Vec<Parameter>, usize)> {
    let mut parameters = Vec::new();
    let mut end = 0;
    while *tokens.get(at)? != ")" {
        at += 1;
        if tokens.get(at) == Some(&".param") {
            let (declared, next) = declaration(tokens, at + 1)?;
            let offset = usize::next_multiple_of(end, declared.align.max(1));
            parameters.push(Parameter { offset, size: declared.bytes });
            end = offset + declared.bytes;
            at = next;
        }
    }
    Some((parameters, at + 1))
}

struct Declared<'a> {
    name: &'a str,
    align: usize,
    bytes: usize,
    element: usize,
}

/// Parses a declaration such as `.align 8 .b8 name[24]`, `.u64 .ptr .global .align 1 name`, `.v4 .f32 name`.
fn declaration<'a>(tokens: &[&'a str], mut at: usize) -> Option<(Declared<'a>, usize)> {
    let (mut align, mut element, mut lanes, mut is_pointer) = (None, None, 1, false);
    let name = loop {
        let token = *tokens.get(at)?;
        at += 1;
        match token {
            ".align" => {
                let value = tokens.get(at)?.parse().ok()?;
                // The alignment behind `.ptr` is that of the target.
                if !is_pointer {
                    align = Some(value);
                }
                at += 1;
            }
            ".ptr" => is_pointer = true,
            ".v2" => lanes = 2,
            ".v4" => lanes = 4,
            ".v8" => lanes = 8,
            _ if token.starts_with('.') => element = element.or(size_of_type(token)),
            _ => break token,
        }
    };
    let element = element?.checked_mul(lanes)?;
    let mut count = 1_usize;
    while tokens.get(at) == Some(&"[") {
        let inside = *tokens.get(at + 1)?;
        if inside == "]" {
            // Sized by its initialiser or at the launch.
            count = 0;
            at += 2;
        } else {
            count = count.checked_mul(inside.parse().ok()?)?;
            at += 3;
        }
    }
    let bytes = element.checked_mul(count)?;
    Some((Declared { name, align: align.unwrap_or(element), bytes, element }, at))
}

fn size_of_type(token: &str) -> Option<usize> {
    Some(match token {
        ".b8" | ".u8" | ".s8" | ".e4m3" | ".e5m2" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" | ".tf32" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" | ".texref" | ".samplerref" | ".surfref" => 8,
        ".b128" => 16,
        _ => return None,
    })
}

/// Parses a variable from behind `.global` or `.const` to the semicolon.
fn variable(tokens: &[&str], at: usize) -> Option<(GlobalInfo, usize)> {
    let (declared, mut at) = declaration(tokens, at)?;
    let mut value = Vec::new();
    while let Some(&token) = tokens.get(at) {
        at += 1;
        match token {
            ";" => break,
            "-" => {
                let number = number(&format!("-{}", tokens.get(at)?)).unwrap_or(0);
                value.extend_from_slice(number.to_le_bytes().get(..declared.element.min(8))?);
                at += 1;
            }
            "=" | "{" | "}" | "," => {}
            // An address is not known here, and counts as zero.
            _ => {
                let number = number(token).unwrap_or(0);
                value.extend_from_slice(number.to_le_bytes().get(..declared.element.min(8))?);
            }
        }
    }
    let bytes = declared.bytes.max(value.len());
    value.truncate(bytes);
    Some((GlobalInfo { name: declared.name.to_owned(), bytes, value }, at))
}

/// Parses an integer, or a floating-point number in exact form (`0f3F800000`).
fn number(token: &str) -> Option<u64> {
    let lower = token.to_ascii_lowercase();
    let digits = lower.trim_end_matches('u');
    if let Some(bits) = lower.strip_prefix("0f").or(lower.strip_prefix("0d")).or(lower.strip_prefix("0x")) {
        return u64::from_str_radix(bits.trim_end_matches('u'), 16).ok();
    }
    digits.parse::<u64>().ok().or_else(|| digits.parse::<i64>().ok().map(i64::cast_unsigned))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
// a comment with .entry in it
.version 8.3
.target sm_90a, debug
.address_size 64
.file 1 "a // b.cu"
.global .align 4 .u32 table[3] = {1, 0x2, -1};
.visible .const .align 4 .f32 one = 0f3F800000;
.extern .global .u32 elsewhere;
.func helper(.param .b32 a) { ret; }
.visible .entry vcuda_spin_ns(
    .param .u64 vcuda_spin_ns_param_0
) .maxntid 256, 2, 1
{
    .reg .u64 %rd<4>;
    .shared .align 16 .b8 buffer[1024];
    { st.shared.u32 [%r1], %r2; }
    ret;
}
.entry mixed(.param .u32 a, .param .u64 .ptr .global .align 4 b, .param .align 8 .b8 c[12], .param .u8 d) { ret; }
.entry nothing() { ret; }
"#;

    #[test]
    fn entries_parameters_and_variables() {
        let image = parse(TEXT).unwrap();
        assert_eq!(image.architecture, 90);
        let names: Vec<&str> = image.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["vcuda_spin_ns", "mixed", "nothing"]);
        let spin = &image.kernels[0];
        assert_eq!(spin.parameters, Some(vec![Parameter { offset: 0, size: 8 }]));
        assert_eq!((spin.shared_bytes, spin.max_threads), (1024, 512));
        let sizes: Vec<(usize, usize)> =
            image.kernels[1].parameters.iter().flatten().map(|p| (p.offset, p.size)).collect();
        assert_eq!(sizes, [(0, 4), (8, 8), (16, 12), (28, 1)]);
        assert_eq!(image.globals.len(), 2);
        assert_eq!(image.globals[0].bytes, 12);
        assert_eq!(image.globals[0].value, [1, 0, 0, 0, 2, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(image.globals[1].value, 1.0_f32.to_le_bytes());
    }

    #[test]
    fn text_that_is_no_module_is_refused() {
        for text in
            ["", "hello", ".version 8.0", ".version 8.0\n.target sm_80\n.entry k() {", ".target sm_80"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse(".version 8.0\n.target sm_80").unwrap().kernels, []);
    }

    #[test]
    fn cut_text_never_breaks_the_parser() {
        for end in (0..TEXT.len()).filter(|end| TEXT.is_char_boundary(*end)) {
            let _ = parse(&TEXT[..end]);
        }
    }
}
