//go:build tools

// Pins h2spec and what it needs, beside the clients.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
