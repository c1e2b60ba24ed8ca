//! A crontab line: minute, hour, day of the month, month, day of the week. Computes the time that follows
//! another one in a time zone. Waits for nothing; `background_task` does.

use jiff::{Zoned, civil::Date, tz::TimeZone};

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
const EVERY_HOUR: u64 = (1 << 24) - 1;
/// A 29th of February is at most eight years away, as after 2096.
const SEARCHED_DAYS: usize = 366 * 8 + 1;

/// The times of a crontab line.
#[derive(Debug, Clone)]
pub(crate) struct Crontab {
    minutes: Field,
    hours: Field,
    days: Field,
    months: Field,
    weekdays: Field,
}

/// The values of one field.
#[derive(Debug, Clone, Copy)]
struct Field {
    /// Bit `n` stands for the value `n`.
    values: u64,
    /// Begins with `*`, so that it does not restrict the day.
    is_any: bool,
}

impl Field {
    fn has(self, value: i8) -> bool {
        self.values & (1 << value) != 0
    }
}

/// What a field may contain.
struct FieldKind {
    name: &'static str,
    first: u32,
    last: u32,
    /// Names of the values from `first` on.
    names: &'static [&'static str],
}

impl Crontab {
    /// Reads a line. The error says what is wrong with it.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let nickname = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(line.trim()));
        let fields: Vec<_> = nickname.map_or(line, |(_, fields)| fields).split_ascii_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(format!("it has {} fields instead of 5", fields.len()));
        };
        let plain = |name, first, last| FieldKind { name, first, last, names: &[] };
        let mut crontab = Crontab {
            minutes: plain("minute", 0, 59).parse(minutes)?,
            hours: plain("hour", 0, 23).parse(hours)?,
            days: plain("day", 1, 31).parse(days)?,
            months: FieldKind { name: "month", first: 1, last: 12, names: &MONTHS }.parse(months)?,
            weekdays: FieldKind { name: "weekday", first: 0, last: 7, names: &WEEKDAYS }.parse(weekdays)?,
        };
        // 7 is Sunday, too.
        crontab.weekdays.values |= crontab.weekdays.values >> 7;
        if crontab.never_has_a_day() {
            return Err("no month that it names has such a day".to_owned());
        }
        Ok(crontab)
    }

    /// The first time after `now`, in its time zone. `None` beyond the years that jiff knows.
    pub(crate) fn next_after(&self, now: &Zoned) -> Option<Zoned> {
        let days = std::iter::successors(Some(now.date()), |day| day.tomorrow().ok()).take(SEARCHED_DAYS);
        let mut days = days.filter(|day| self.has_day(*day));
        days.find_map(|day| self.times_of(day, now.time_zone()).filter(|time| time > now).min())
    }

    /// If both kinds of day are restricted, one of them is enough, as in cron.
    fn has_day(&self, date: Date) -> bool {
        let day = self.days.has(date.day());
        let weekday = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        let either = !self.days.is_any && !self.weekdays.is_any;
        self.months.has(date.month()) && if either { day || weekday } else { day && weekday }
    }

    /// A time in an hour that the clocks skip is moved by the length of the gap. A repeated time occurs
    /// once, or twice if the line runs in every hour.
    fn times_of<'a>(&'a self, date: Date, zone: &'a TimeZone) -> impl Iterator<Item = Zoned> + 'a {
        let hours = (0..24).filter(|hour| self.hours.has(*hour));
        let times = hours.flat_map(move |hour| {
            (0..60).filter(move |minute| self.minutes.has(*minute)).map(move |minute| date.at(hour, minute, 0, 0))
        });
        times.flat_map(move |time| {
            let first = zone.to_ambiguous_zoned(time);
            let second = first.clone();
            let repeats = self.hours.values == EVERY_HOUR && first.is_ambiguous();
            first.compatible().into_iter().chain(second.later().into_iter().filter(move |_| repeats))
        })
    }

    fn never_has_a_day(&self) -> bool {
        let longest = |month| match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let exists = |month: i8| (1..=longest(month)).any(|day| self.days.has(day));
        self.weekdays.is_any && !(1..=12).any(|month| self.months.has(month) && exists(month))
    }
}

impl FieldKind {
    /// Reads values and ranges (`1,5-9,*/15`).
    fn parse(&self, text: &str) -> Result<Field, String> {
        let mut values = 0;
        for part in text.split(',') {
            let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
            let (first, last) = match range.split_once('-') {
                _ if range == "*" => (self.first, self.last),
                Some((first, last)) => (self.value(first)?, self.value(last)?),
                // `5/15` is every 15 from 5 on.
                None if step.is_some() => (self.value(range)?, self.last),
                None => (self.value(range)?, self.value(range)?),
            };
            let step = step.map_or(Some(1), |step| step.parse().ok().filter(|step| *step > 0));
            let step = step.ok_or_else(|| format!("the step of the {} `{part}` is no number above 0", self.name))?;
            if first > last {
                return Err(format!("the {} `{part}` begins after its end", self.name));
            }
            (first..=last).step_by(step).for_each(|value| values |= 1_u64 << value);
        }
        Ok(Field { values, is_any: text.starts_with('*') })
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().zip(self.first..).find(|(name, _)| name.eq_ignore_ascii_case(text));
        let value = named.map(|(_, value)| value).or_else(|| text.parse().ok());
        value.filter(|value| (self.first..=self.last).contains(value)).ok_or_else(|| {
            let names = self.names.first().zip(self.names.last());
            let names = names.map_or(String::new(), |(first, last)| format!(" or {first} to {last}"));
            format!("the {} `{text}` is not {} to {}{names}", self.name, self.first, self.last)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, now: &str, expected: &str) {
        let next = Crontab::parse(line).unwrap().next_after(&now.parse().unwrap()).map(|next| next.to_string());
        assert_eq!(next.as_deref(), Some(expected), "{line} after {now}");
    }

    #[track_caller]
    fn refuse(line: &str, reason: &str) {
        assert_eq!(Crontab::parse(line).err().as_deref(), Some(reason), "{line}");
    }

    #[test]
    fn next_time_follows_every_field() {
        let now = "2026-11-15T01:01:30+00:00[UTC]"; // A Sunday.
        check("* * * * *", now, "2026-11-15T01:02:00+00:00[UTC]");
        check("*/15 * * * *", now, "2026-11-15T01:15:00+00:00[UTC]");
        check("5,1-3/2 * * * *", now, "2026-11-15T01:03:00+00:00[UTC]");
        check("50/5 9-17 * * *", now, "2026-11-15T09:50:00+00:00[UTC]");
        check("0 0 * * MON-fri", now, "2026-11-16T00:00:00+00:00[UTC]");
        check("0 0 * * 7", now, "2026-11-22T00:00:00+00:00[UTC]");
        check("45 17 1 dec *", now, "2026-12-01T17:45:00+00:00[UTC]");
        check("0 0 29 2 *", now, "2028-02-29T00:00:00+00:00[UTC]");
        check("0 0 29 2 *", "2096-03-01T00:00:00+00:00[UTC]", "2104-02-29T00:00:00+00:00[UTC]");
        check("@hourly", now, "2026-11-15T02:00:00+00:00[UTC]");
        check("@Yearly", now, "2027-01-01T00:00:00+00:00[UTC]");
    }

    #[test]
    fn next_time_is_after_now() {
        check("0 1 * * *", "2026-11-15T01:00:00+00:00[UTC]", "2026-11-16T01:00:00+00:00[UTC]");
    }

    #[test]
    fn either_kind_of_day_is_enough_if_both_are_restricted() {
        check("0 0 20 * MON", "2026-11-15T00:00:00+00:00[UTC]", "2026-11-16T00:00:00+00:00[UTC]");
        check("0 0 20 * MON", "2026-11-16T00:00:00+00:00[UTC]", "2026-11-20T00:00:00+00:00[UTC]");
        check("0 0 */5 * MON", "2026-11-16T00:00:00+00:00[UTC]", "2026-12-21T00:00:00+00:00[UTC]");
    }

    #[test]
    fn clock_changes_lose_no_time() {
        // Berlin, 2026-03-29: 02:00 becomes 03:00. 2026-10-25: 03:00 becomes 02:00.
        let before_gap = "2026-03-29T01:45:00+01:00[Europe/Berlin]";
        check("30 2 * * *", before_gap, "2026-03-29T03:30:00+02:00[Europe/Berlin]");
        check("30 * * * *", before_gap, "2026-03-29T03:30:00+02:00[Europe/Berlin]");
        check("30 3 * * *", before_gap, "2026-03-29T03:30:00+02:00[Europe/Berlin]");
        let in_fold = "2026-10-25T02:30:00+02:00[Europe/Berlin]";
        check("30 2 * * *", in_fold, "2026-10-26T02:30:00+01:00[Europe/Berlin]");
        check("30 * * * *", in_fold, "2026-10-25T02:30:00+01:00[Europe/Berlin]");
    }

    #[test]
    fn mistakes_are_named() {
        refuse("* * * *", "it has 4 fields instead of 5");
        refuse("61 * * * *", "the minute `61` is not 0 to 59");
        refuse("* * * Foo *", "the month `Foo` is not 1 to 12 or JAN to DEC");
        refuse("*/0 * * * *", "the step of the minute `*/0` is no number above 0");
        refuse("* 9-5 * * *", "the hour `9-5` begins after its end");
        refuse("0 0 30 2 *", "no month that it names has such a day");
        refuse("@reboot", "it has 1 fields instead of 5");
        refuse("", "it has 0 fields instead of 5");
    }
}
