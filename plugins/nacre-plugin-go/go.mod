module nacre

go 1.24
