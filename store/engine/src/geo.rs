//! Places on Earth as numbers: which cell of a grid they are in, and what lies around them. All of it gives the digits
//! of Redis 7.0, so the order of its operations on floats is Redis' own.
//!
//! Longitude and latitude are halved 26 times each; their bits in turn are a place's number, exact in the score of a
//! sorted set. Numbers that begin alike are in the same cell of a coarser grid.

/// Longitude and latitude, in degrees.
pub type Position = [f64; 2];

/// How far from zero a longitude and a latitude may be: the map is a square without the poles.
const LIMITS: Position = [180.0, 85.051_128_78];
/// How far they may be in other maps.
const GLOBE: Position = [180.0, 90.0];
/// How often each is halved.
const FINEST: u32 = 26;
const EARTH_RADIUS: f64 = 6_372_797.560_856;
/// Half of the map's width in metres.
const MAP_METRES: f64 = 20_037_726.37;

/// Whether a place is on the map.
pub fn is_on_map(position: Position) -> bool {
    position.iter().zip(LIMITS).all(|(at, limit)| (-limit..=limit).contains(at))
}

/// A cell of a grid of some coarseness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    x: u32,
    y: u32,
    step: u32,
}

/// The bits of two numbers in turn, those of `odd` first.
fn interleave(odd: u32, even: u32) -> u64 {
    fn spread(number: u32) -> u64 {
        let mut bits = u64::from(number);
        for (shift, mask) in [
            (16, 0x0000_FFFF_0000_FFFF),
            (8, 0x00FF_00FF_00FF_00FF),
            (4, 0x0F0F_0F0F_0F0F_0F0F),
            (2, 0x3333_3333_3333_3333),
            (1, 0x5555_5555_5555_5555),
        ] {
            bits = (bits | bits << shift) & mask;
        }
        bits
    }
    spread(odd) << 1 | spread(even)
}

/// Every second bit, the lowest first.
fn every_second(bits: u64) -> u32 {
    (0..32).fold(0, |number, at| number | ((bits >> (2 * at)) as u32 & 1) << at)
}

impl Cell {
    fn of(position: Position, limits: Position, step: u32) -> Cell {
        let part = |axis: usize| {
            let (least, most) = (-limits[axis], limits[axis]);
            ((position[axis] - least) / (most - least) * (1_u64 << step) as f64) as u32
        };
        Cell { x: part(0), y: part(1), step }
    }

    fn bits(self) -> u64 {
        interleave(self.x, self.y)
    }

    /// First number that is in this cell, and the first behind it.
    fn numbers(self) -> (f64, f64) {
        let shift = 2 * (FINEST - self.step);
        ((self.bits() << shift) as f64, ((self.bits() + 1) << shift) as f64)
    }

    /// Where the cell begins and ends.
    fn edges(self) -> [Position; 2] {
        let edge = |axis: usize, at: u32| {
            let share = f64::from(at) / (1_u64 << self.step) as f64;
            -LIMITS[axis] + share * (LIMITS[axis] - -LIMITS[axis])
        };
        [
            [edge(0, self.x), edge(1, self.y)],
            [edge(0, self.x.wrapping_add(1)), edge(1, self.y.wrapping_add(1))],
        ]
    }

    /// The cell that many places east and north of it; the grid has no end.
    fn moved(self, east: i32, north: i32) -> Cell {
        let moved = |at: u32, by: i32| match by {
            0 => at,
            _ => at.wrapping_add_signed(by) & ((1 << self.step) - 1),
        };
        Cell { x: moved(self.x, east), y: moved(self.y, north), step: self.step }
    }
}

/// The number of a place on the map.
pub fn number_of(position: Position) -> u64 {
    Cell::of(position, LIMITS, FINEST).bits()
}

/// A float as C on most machines makes it an unsigned number, whatever it is: scores need not be places.
fn as_unsigned(score: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if score < HALF { as_signed(score) as u64 } else { as_signed(score - HALF) as u64 ^ 1 << 63 }
}

/// A float as C on most machines makes it a number.
pub fn as_signed(score: f64) -> i64 {
    let number = score as i64;
    if number == i64::MAX || score.is_nan() { i64::MIN } else { number }
}

/// The place that a score stands for.
pub fn position_of(score: f64) -> Position {
    let bits = as_unsigned(score);
    let cell = Cell { x: every_second(bits >> 1), y: every_second(bits), step: FINEST };
    let [from, to] = cell.edges();
    [0, 1].map(|axis| ((from[axis] + to[axis]) / 2.0).clamp(-LIMITS[axis], LIMITS[axis]))
}

/// The eleven letters that other maps have for a place.
pub fn letters_of(position: Position) -> [u8; 11] {
    const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    let bits = Cell::of(position, GLOBE, FINEST).bits();
    let mut letters = [b'0'; 11];
    // 52 bits are ten letters; the last one is always the first of the alphabet.
    for (at, letter) in letters.iter_mut().take(10).enumerate() {
        *letter = ALPHABET[(bits >> (52 - 5 * (at + 1))) as usize & 31];
    }
    letters
}

fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}

/// Metres between two places on a sphere.
pub fn distance(one: Position, other: Position) -> f64 {
    let [[x1, y1], [x2, y2]] = [one, other].map(|position| position.map(radians));
    let (u, v) = (((y2 - y1) / 2.0).sin(), ((x2 - x1) / 2.0).sin());
    2.0 * EARTH_RADIUS * (u * u + y1.cos() * y2.cos() * v * v).sqrt().asin()
}

/// What is searched around a place, in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// As far as that.
    Circle(f64),
    /// Width and height.
    Rectangle(f64, f64),
}

/// A place and what is searched around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// In the middle.
    pub center: Position,
    /// Around it.
    pub shape: Shape,
}

impl Area {
    /// How far from the centre a place in the area is.
    pub fn distance_inside(&self, position: Position) -> Option<f64> {
        let [x, y] = position;
        let inside = match self.shape {
            Shape::Circle(radius) => distance(self.center, position) <= radius,
            Shape::Rectangle(width, height) => {
                distance(position, [self.center[0], y]) <= width / 2.0
                    && distance(position, [x, self.center[1]]) <= height / 2.0
            }
        };
        inside.then(|| distance(self.center, position))
    }

    /// Where the area begins and ends, about.
    fn bounds(&self) -> [Position; 2] {
        let [x, y] = self.center;
        let (width, height) = match self.shape {
            Shape::Circle(radius) => (radius, radius),
            Shape::Rectangle(width, height) => (width / 2.0, height / 2.0),
        };
        let up = degrees(height / EARTH_RADIUS);
        // Of the two edges, the one nearer to the equator is the longer.
        let edge = if y < 0.0 { y - up } else { y + up };
        let aside = degrees(width / EARTH_RADIUS / radians(edge).cos());
        [[x - aside, y - up], [x + aside, y + up]]
    }

    /// How fine a grid's cells may be so that nine of them cover the area, mostly.
    fn step(&self) -> u32 {
        let radius = match self.shape {
            Shape::Circle(radius) => radius,
            Shape::Rectangle(width, height) => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        if radius == 0.0 {
            return FINEST;
        }
        let (mut reach, mut step) = (radius, 1_i32);
        while reach < MAP_METRES {
            reach *= 2.0;
            step += 1;
        }
        step -= 2;
        // Towards the poles cells are narrower.
        let latitude = self.center[1].abs();
        step -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        step.clamp(1, FINEST as i32).unsigned_abs()
    }

    /// Ranges of numbers that places in the area have, in the order in which Redis looks at them: first its own cell,
    /// then those around it that are of use. The ends are excluded.
    pub fn ranges(&self) -> Vec<(f64, f64)> {
        const AROUND: [(i32, i32); 9] =
            [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let [least, most] = self.bounds();
        let mut step = self.step();
        let mut own = Cell::of(self.center, LIMITS, step);
        let too_fine = own.moved(0, 1).edges()[1][1] < most[1]
            || own.moved(0, -1).edges()[0][1] > least[1]
            || own.moved(1, 0).edges()[1][0] < most[0]
            || own.moved(-1, 0).edges()[0][0] > least[0];
        if step > 1 && too_fine {
            step -= 1;
            own = Cell::of(self.center, LIMITS, step);
        }
        let [from, to] = own.edges();
        let (mut cells, mut last) = (Vec::new(), None);
        for (at, (east, north)) in AROUND.into_iter().enumerate() {
            let useless = step >= 2
                && (north < 0 && from[1] < least[1]
                    || north > 0 && to[1] > most[1]
                    || east < 0 && from[0] < least[0]
                    || east > 0 && to[0] > most[0]);
            let cell = own.moved(east, north);
            // Of a coarse grid neighbours may be the same.
            if useless || last == Some(cell) {
                continue;
            }
            cells.push(cell.numbers());
            last = (at > 0).then_some(cell);
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_the_numbers_of_redis() {
        // As redis-server 7.0.15 has them.
        let palermo = [13.361389, 38.115556];
        assert_eq!(number_of(palermo), 3_479_099_956_230_698);
        let held = position_of(3_479_099_956_230_698.0);
        assert_eq!(held, [13.361_389_338_970_184, 38.115_556_395_496_3]);
        assert_eq!(&letters_of(held), b"sqc8b49rny0");
        let catania = position_of(number_of([15.087269, 37.502669]) as f64);
        assert_eq!(format!("{:.4}", distance(held, catania)), "166274.1516");
    }

    #[test]
    fn bits_come_apart_as_they_came_together() {
        for (x, y) in [(0, 0), (u32::MAX, 0), (0, u32::MAX), (0xDEAD_BEEF, 0x1234_5678)] {
            let bits = interleave(x, y);
            assert_eq!((every_second(bits >> 1), every_second(bits)), (x, y));
        }
    }

    #[test]
    fn any_score_is_a_place() {
        for score in [f64::NEG_INFINITY, -1.5, 0.0, 1e15, 1e19, 1e300, f64::INFINITY] {
            assert!(is_on_map(position_of(score)), "{score}");
        }
        assert!(!is_on_map([180.1, 0.0]) && !is_on_map([0.0, f64::NAN]));
    }

    /// What is in an area is in one of its ranges.
    #[test]
    fn ranges_cover_the_area() {
        let positions: Vec<Position> = (0..4_000)
            .map(|at| [f64::from(at * 37 % 3_600) / 10.0 - 180.0, f64::from(at * 53 % 1_690) / 10.0 - 84.5])
            .collect();
        for (at, center) in positions.iter().copied().enumerate().step_by(191) {
            for shape in
                [Shape::Circle(90_000.0), Shape::Circle(2e6), Shape::Rectangle(3e6, 4e5), Shape::Circle(1e8)]
            {
                let area = Area { center, shape };
                let ranges = area.ranges();
                // At the ends of the map it ends for Redis, too.
                let [least, most] = area.bounds();
                let is_all = shape == Shape::Circle(1e8);
                let reaches_out = !is_on_map(least) || !is_on_map(most);
                if reaches_out && !is_all {
                    continue;
                }
                for position in &positions {
                    let number = number_of(*position) as f64;
                    let covered = ranges.iter().any(|(from, to)| (*from..*to).contains(&number));
                    assert!(
                        covered || area.distance_inside(*position).is_none(),
                        "{at} {shape:?} {position:?}"
                    );
                }
            }
        }
    }
}
