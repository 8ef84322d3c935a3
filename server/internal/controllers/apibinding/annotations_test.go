package apibinding

import (
	"maps"
	"testing"
)

func TestAnnotationsOfAnExportArePassedOn(t *testing.T) {
	for name, tc := range map[string]struct{ own, export, want map[string]string }{
		"nothing":          {},
		"a new one":        {nil, map[string]string{"extra.apis.kcp.io/a": "1", "other": "2"}, map[string]string{"extra.apis.kcp.io/a": "1"}},
		"a changed one":    {map[string]string{"extra.apis.kcp.io/a": "0", "own": "x"}, map[string]string{"extra.apis.kcp.io/a": "1"}, map[string]string{"extra.apis.kcp.io/a": "1", "own": "x"}},
		"one that is gone": {map[string]string{"extra.apis.kcp.io/a": "0", "own": "x"}, nil, map[string]string{"own": "x"}},
		"no prefix":        {map[string]string{"own": "x"}, map[string]string{"own": "y", "extra.apis.kcp.iox/a": "1"}, map[string]string{"own": "x"}},
	} {
		if got := passedOn(tc.own, tc.export); !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
