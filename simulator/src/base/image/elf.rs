//! Cubins: ELF files for machine EM_CUDA.

use core::ops::Range;

use object::LittleEndian as Le;
use object::elf::{EM_CUDA, FileHeader64, SHT_SYMTAB, STT_FUNC, STT_OBJECT, SectionHeader64};
use object::read::elf::{FileHeader as _, SectionHeader as _, SectionTable, Sym as _};

use super::{GlobalInfo, Image, KernelInfo, Parameter, part, u16_at, u32_at};

/// `st_other` of a kernel, as opposed to a device function.
const STO_CUDA_ENTRY: u8 = 0x10;
/// Attributes in `.nv.info` sections.
const EIATTR_MAX_THREADS: u8 = 0x05;
const EIATTR_REGISTERS: u8 = 0x2f;
const EIATTR_KPARAM_INFO: u8 = 0x17;
/// Shared memory per block that the hardware reserves (bytes), part of the section if there is one (docs/hardware.md,
/// "resources of a kernel").
const RESERVED_SHARED: u32 = 1024;
/// Format of an attribute with a size field; others have a value of two bytes.
const EIFMT_SVAL: u8 = 4;

/// The header of a 64-bit, little-endian file for this machine.
fn header(file: &[u8]) -> Option<&FileHeader64<Le>> {
    let header = FileHeader64::<Le>::parse(file).ok()?;
    let is_little = header.is_little_endian();
    (is_little && header.e_machine(Le) == EM_CUDA).then_some(header)
}

/// Position of the section headers, by the file's header.
pub(super) fn section_table(file: &[u8]) -> Option<Range<usize>> {
    let header = header(file)?;
    let start = usize::try_from(header.e_shoff(Le)).ok()?;
    let bytes = usize::from(header.e_shentsize(Le)).checked_mul(usize::from(header.e_shnum(Le)))?;
    Some(start..start.checked_add(bytes)?)
}

/// Length of the file: the end of its last part.
pub(super) fn length(file: &[u8]) -> Option<usize> {
    let mut end = section_table(file)?.end;
    for section in header(file)?.section_headers(Le, file).ok()? {
        if let Some((offset, bytes)) = section.file_range(Le) {
            end = end.max(usize::try_from(offset.checked_add(bytes)?).ok()?);
        }
    }
    Some(end)
}

struct Sections<'a> {
    table: SectionTable<'a, FileHeader64<Le>>,
    file: &'a [u8],
}

impl<'a> Sections<'a> {
    fn name(&self, section: &SectionHeader64<Le>) -> Option<&'a str> {
        core::str::from_utf8(self.table.section_name(Le, section).ok()?).ok()
    }

    fn bytes(&self, section: &SectionHeader64<Le>) -> Option<&'a [u8]> {
        section.data(Le, self.file).ok()
    }

    fn named(&self, name: &str) -> Option<&'a SectionHeader64<Le>> {
        self.table.iter().find(|section| self.name(section) == Some(name))
    }
}

/// Reads kernels and variables.
pub(super) fn parse(file: &[u8]) -> Option<Image> {
    let header = header(file)?;
    let sections = Sections { table: header.sections(Le, file).ok()?, file };
    let symbols = sections.table.symbols(Le, file, SHT_SYMTAB).ok()?;
    let mut image = Image { architecture: architecture(header.e_flags(Le)), ..Image::default() };
    let common = sections.named(".nv.info").and_then(|section| sections.bytes(section));
    let common = common.unwrap_or_default();
    for (index, symbol) in symbols.enumerate() {
        let name = core::str::from_utf8(symbols.symbol_name(Le, symbol).ok()?).ok()?;
        let section = symbols.symbol_section(Le, symbol, index).ok()?;
        let section = section.and_then(|index| sections.table.section(index).ok());
        match (symbol.st_type(), section) {
            (STT_FUNC, Some(_)) if symbol.st_other() & STO_CUDA_ENTRY != 0 => {
                let mut kernel = kernel(&sections, name)?;
                if let Some(count) = registers(common, index.0) {
                    kernel.registers = count;
                }
                image.kernels.push(kernel);
            }
            (STT_OBJECT, Some(section)) if !sections.name(section)?.starts_with(".nv.shared") => {
                let bytes = usize::try_from(symbol.st_size(Le)).ok()?;
                let offset = usize::try_from(symbol.st_value(Le)).ok()?;
                let value = part(sections.bytes(section)?, offset, bytes).unwrap_or_default().to_vec();
                image.globals.push(GlobalInfo { name: name.to_owned(), bytes, value });
            }
            _ => {}
        }
    }
    Some(image)
}

/// Architecture number in `e_flags`: the low byte; from ABI 8 (CUDA 13) on the second one.
fn architecture(flags: u32) -> u32 {
    let low = flags & 0xff;
    if (20..=121).contains(&low) { low } else { (flags >> 8) & 0xff }
}

fn kernel(sections: &Sections<'_>, name: &str) -> Option<KernelInfo> {
    let of = |prefix: &str| sections.named(&format!("{prefix}{name}"));
    let mut kernel = KernelInfo {
        name: name.to_owned(),
        shared_bytes: of(".nv.shared.").map_or(0, |section| section.sh_size(Le) as u32),
        // The register count is in the top byte of the code section's `sh_info`.
        registers: of(".text.").map_or(0, |section| section.sh_info(Le) >> 24),
        parameters: Some(Vec::new()),
        ..KernelInfo::default()
    };
    // From compute capability 9.0 on, the section begins with the hardware's reserved part.
    let is_reserved =
        |section| sections.name(section).is_some_and(|name| name.starts_with(".nv.shared.reserved"));
    if kernel.shared_bytes >= RESERVED_SHARED && sections.table.iter().any(is_reserved) {
        kernel.shared_bytes -= RESERVED_SHARED;
    }
    if let Some(section) = of(".nv.info.") {
        attributes(sections.bytes(section)?, &mut kernel)?;
    }
    Some(kernel)
}

/// The first attribute of an `.nv.info` section, its value, and the remaining bytes.
fn attribute(rest: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let size = if *rest.first()? == EIFMT_SVAL { usize::from(u16_at(rest, 2)?) } else { 0 };
    Some((*rest.get(1)?, part(rest, 4, size)?, rest.get(4 + size..)?))
}

/// Registers of the function with this symbol number, from the section for the whole file.
fn registers(mut rest: &[u8], symbol: usize) -> Option<u32> {
    while let Some((attribute, value, next)) = attribute(rest) {
        if attribute == EIATTR_REGISTERS && u32_at(value, 0)? as usize == symbol {
            return u32_at(value, 4);
        }
        rest = next;
    }
    None
}

fn attributes(mut rest: &[u8], kernel: &mut KernelInfo) -> Option<()> {
    let mut parameters = Vec::new();
    while rest.len() >= 4 {
        let (attribute, value, next) = attribute(rest)?;
        match attribute {
            EIATTR_KPARAM_INFO => {
                let ordinal = u16_at(value, 4)?;
                let offset = usize::from(u16_at(value, 6)?);
                // The size is the top 14 bits of the last word.
                parameters.push((ordinal, Parameter { offset, size: (u32_at(value, 8)? >> 18) as usize }));
            }
            EIATTR_MAX_THREADS => {
                let [x, y, z] = [u32_at(value, 0)?, u32_at(value, 4)?, u32_at(value, 8)?];
                kernel.max_threads = x.saturating_mul(y).saturating_mul(z);
            }
            _ => {}
        }
        rest = next;
    }
    parameters.sort_by_key(|&(ordinal, _)| ordinal);
    kernel.parameters = Some(parameters.into_iter().map(|(_, parameter)| parameter).collect());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, kind, `sh_info`, contents, link.
    type Given<'a> = (&'a str, u32, u32, Vec<u8>, u32);

    /// A cubin with these sections, numbered from 1; names and headers are added.
    fn cubin(mut sections: Vec<Given<'_>>) -> Vec<u8> {
        sections.insert(0, ("", 0, 0, Vec::new(), 0));
        let names: Vec<u8> =
            sections.iter().flat_map(|section| [section.0.as_bytes(), b"\0"].concat()).collect();
        sections.push(("", 3, 0, [names, vec![0]].concat(), 0));
        let mut file = vec![0; 64];
        file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        file[18..20].copy_from_slice(&EM_CUDA.to_le_bytes());
        file[48..52].copy_from_slice(&90_u32.to_le_bytes());
        let (mut headers, mut name) = (Vec::new(), 0_u32);
        for (text, kind, info, bytes, link) in &sections {
            let mut header = vec![0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(file.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            header[40..44].copy_from_slice(&link.to_le_bytes());
            header[44..48].copy_from_slice(&info.to_le_bytes());
            name += text.len() as u32 + 1;
            file.extend_from_slice(bytes);
            headers.extend_from_slice(&header);
        }
        let (table, count) = (file.len() as u64, sections.len() as u16);
        file[40..48].copy_from_slice(&table.to_le_bytes());
        file[58..60].copy_from_slice(&64_u16.to_le_bytes());
        file[60..62].copy_from_slice(&count.to_le_bytes());
        file[62..64].copy_from_slice(&(count - 1).to_le_bytes());
        file.extend_from_slice(&headers);
        file
    }

    fn symbol(name: u32, kind: u8, other: u8, section: u16, value: u64, size: u64) -> Vec<u8> {
        let mut symbol = name.to_le_bytes().to_vec();
        symbol.extend_from_slice(&[kind, other]);
        symbol.extend_from_slice(&section.to_le_bytes());
        symbol.extend_from_slice(&value.to_le_bytes());
        symbol.extend_from_slice(&size.to_le_bytes());
        symbol
    }

    fn parameter(ordinal: u16, offset: u16, size: u32) -> Vec<u8> {
        let mut info = vec![EIFMT_SVAL, EIATTR_KPARAM_INFO, 12, 0, 0, 0, 0, 0];
        info.extend_from_slice(&ordinal.to_le_bytes());
        info.extend_from_slice(&offset.to_le_bytes());
        info.extend_from_slice(&(size << 18).to_le_bytes());
        info
    }

    fn example() -> Vec<u8> {
        let symbols = [
            symbol(0, 0, 0, 0, 0, 0),
            symbol(1, STT_FUNC, STO_CUDA_ENTRY, 3, 0, 16),
            symbol(3, STT_OBJECT, 0, 5, 4, 4),
            symbol(5, STT_FUNC, 0, 3, 0, 16),
        ];
        let registers = [&[EIFMT_SVAL, EIATTR_REGISTERS, 8, 0][..], &[1, 0, 0, 0], &[40, 0, 0, 0]].concat();
        cubin(vec![
            ("strings", 3, 0, b"\0k\0v\0f\0".to_vec(), 0),
            ("symbols", SHT_SYMTAB, 0, symbols.concat(), 1),
            (".text.k", 1, 7 << 24, vec![0; 16], 0),
            // In reverse order of declaration, as compilers write them.
            (".nv.info.k", 1, 0, [parameter(1, 8, 4), parameter(0, 0, 8)].concat(), 0),
            (".nv.global.init", 1, 0, vec![1, 2, 3, 4, 5, 6, 7, 8], 0),
            (".nv.info", 1, 0, registers, 0),
        ])
    }

    #[test]
    fn kernels_parameters_registers_and_variables() {
        let file = example();
        assert_eq!(length(&file), Some(file.len()));
        let image = parse(&file).unwrap();
        assert_eq!(image.architecture, 90);
        assert_eq!(image.kernels.len(), 1, "a device function is no kernel");
        assert_eq!(image.kernels[0].name, "k");
        let parameters = [Parameter { offset: 0, size: 8 }, Parameter { offset: 8, size: 4 }];
        assert_eq!(image.kernels[0].parameters.as_deref(), Some(&parameters[..]));
        assert_eq!(image.kernels[0].registers, 40);
        assert_eq!(image.globals[0].name, "v");
        assert_eq!(image.globals[0].value, [5, 6, 7, 8]);
    }

    #[test]
    fn damage_never_breaks_the_parser() {
        let file = example();
        for end in 0..file.len() {
            let _ = parse(&file[..end]);
        }
        for at in 0..file.len() {
            for value in [0, 0x7f, 0xff] {
                let mut damaged = file.clone();
                damaged[at] = value;
                let _ = (parse(&damaged), length(&damaged));
            }
        }
    }
}
