package operatortest_test

import (
	"testing"

	"github.com/kcplane/kcp/operator/internal/operatortest"
)

func TestOnlyCertificatesThatACASignedAreVerified(t *testing.T) {
	authority, other := operatortest.NewKey(t), operatortest.NewKey(t)
	root, leaf := operatortest.Certificate(t, "by", authority, authority), operatortest.Certificate(t, "leaf", operatortest.NewKey(t), authority)
	foreign := operatortest.Certificate(t, "by", other, other)
	for name, test := range map[string]struct {
		chain, authorities []byte
		verified           bool
	}{
		"its authority":          {leaf, root, true},
		"another authority":      {leaf, foreign, false},
		"no certificate":         {nil, root, false},
		"no authority":           {leaf, nil, false},
		"an invalid certificate": {operatortest.PEM("x"), root, false},
	} {
		if err := operatortest.Verify(test.chain, test.authorities); (err == nil) != test.verified {
			t.Errorf("%s: %v", name, err)
		}
	}
}
