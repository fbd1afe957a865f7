module plugin/{{name}}

go 1.24

require nacre v0.0.0

replace nacre => ./nacre
