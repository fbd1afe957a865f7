module webhooks

go 1.24

require nacre v0.0.0

replace nacre => ../../plugins/nacre-plugin-go
