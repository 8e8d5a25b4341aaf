"""From readings to verdicts. Pure: no clock, file or child; time is the tick's."""
