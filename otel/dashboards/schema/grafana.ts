// What may stand in lockkit.json, by the types that Grafana publishes. The test writes the file as a literal beside
// this, so that what the types do not have, or have otherwise, does not compile.

import type { Dashboard, DataQuery, Panel, RowPanel, VariableModel } from '@grafana/schema';
import type { FieldConfig as HeatmapFields, Options as Heatmap } from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type { Options as Stat } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { FieldConfig as TimeSeriesFields, Options as TimeSeries } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// Written is a type as JSON has it: an enum is its value.
type Written<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T : { [K in keyof T]: Written<T[K]> };

// Sparse is what a panel says of its options: Grafana adds the defaults of the plugin.
type Sparse<T> = T extends readonly unknown[] ? T : T extends object ? { [K in keyof T]?: Sparse<T[K]> } : T;

// Query is one of the Prometheus data source, whose own type is in a package of Grafana's, and not in the schema.
type Query = Written<Omit<DataQuery, 'datasource'>> & {
  refId: string;
  datasource: { type: 'prometheus'; uid: string };
  expr: string;
  legendFormat: string;
  range: boolean;
  instant?: boolean;
  exemplar?: boolean;
  format?: 'time_series' | 'table' | 'heatmap';
  editorMode: 'code' | 'builder';
};

type Defaults = NonNullable<Panel['fieldConfig']>['defaults'];
type Fields<C> = { defaults: Written<Omit<Defaults, 'custom'>> & { custom?: Sparse<Written<C>> }; overrides: never[] };

type Place = Required<Pick<Panel, 'id' | 'title' | 'gridPos'>> & Pick<Panel, 'description'>;

type Chart<T extends string, O, C> = Written<Place> & {
  type: T;
  datasource: { type: 'prometheus'; uid: string };
  targets: Query[];
  fieldConfig: Fields<C>;
  options: Sparse<Written<O>>;
};

type Variable = Written<Omit<VariableModel, 'current'>> & { definition?: string; current: { text?: string; value?: string } };

export type File = Written<Omit<Dashboard, 'panels' | 'templating'>> & {
  templating: { list: Variable[] };
  panels: (Written<RowPanel> | Chart<'stat', Stat, {}> | Chart<'timeseries', TimeSeries, TimeSeriesFields> | Chart<'heatmap', Heatmap, HeatmapFields>)[];
};
