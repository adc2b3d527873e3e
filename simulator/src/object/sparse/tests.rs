//! Tests of tiles of sparse arrays.

use super::*;

fn layout(width: usize, height: usize, depth: usize, flags: u32, levels: u32) -> Layout {
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: CUarray_format::FLOAT,
        NumChannels: 1,
        Flags: flags | CUDA_ARRAY3D_SPARSE,
    };
    Layout::new(descriptor, levels)
}

fn part(level: u32, offset: [u32; 2], size: [u32; 2]) -> CUarrayMapInfo_subresource_sparseLevel {
    CUarrayMapInfo_subresource_sparseLevel {
        level,
        layer: 0,
        offsetX: offset[0],
        offsetY: offset[1],
        offsetZ: 0,
        extentWidth: size[0],
        extentHeight: size[1],
        extentDepth: 1,
    }
}

#[test]
fn every_tile_is_as_many_bytes() {
    for (channels, format) in
        [(1, CUarray_format::UNSIGNED_INT8), (4, CUarray_format::FLOAT), (2, CUarray_format::HALF)]
    {
        for depth in [0, 64] {
            let mut descriptor = layout(512, 512, depth, 0, 1).descriptor;
            (descriptor.NumChannels, descriptor.Format) = (channels, format);
            let tile = Layout::new(descriptor, 1).tile;
            let bytes: u64 = tile.iter().product::<u64>() * texel_bytes(&descriptor).unwrap();
            assert_eq!(bytes, TILE_BYTES);
        }
    }
}

#[test]
fn boxes_are_whole_tiles_or_end_at_the_edge() {
    let layout = layout(300, 256, 0, 0, 1);
    assert_eq!(layout.tiles(&part(0, [0, 0], [300, 256])).unwrap().len(), 6);
    assert_eq!(layout.tiles(&part(0, [0, 0], [384, 256])).unwrap().len(), 6);
    assert_eq!(layout.tiles(&part(0, [128, 128], [128, 128])).unwrap(), [Part::Tile(0, 0, [1, 1, 0])]);
    for wrong in [
        part(0, [1, 0], [128, 128]),
        part(0, [0, 0], [100, 128]),
        part(0, [0, 0], [512, 128]),
        part(0, [0, 0], [0, 128]),
        part(1, [0, 0], [128, 128]),
    ] {
        assert_eq!(layout.tiles(&wrong).err(), Some(CUerror::INVALID_VALUE), "{wrong:?}");
    }
}

#[test]
fn levels_smaller_than_a_tile_are_the_tail() {
    let layout = layout(512, 512, 3, CUDA_ARRAY3D_LAYERED, 10);
    let properties = layout.properties(false);
    assert_eq!((properties.miptailFirstLevel, properties.flags), (3, 0));
    assert_eq!(properties.miptailSize, TILE_BYTES);
    let tail = |layer, size| CUarrayMapInfo_subresource_miptail { layer, offset: 0, size };
    assert_eq!(layout.tail(&tail(2, TILE_BYTES), false).unwrap(), [Part::Tail(2, 0)]);
    assert!(layout.tail(&tail(3, TILE_BYTES), false).is_err());
    assert!(layout.tail(&tail(0, 2 * TILE_BYTES), false).is_err());
}
