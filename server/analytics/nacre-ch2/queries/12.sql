SELECT o_ol_cnt, SUM(CASE WHEN o_carrier_id IN (1, 2) THEN 1 ELSE 0 END) AS high_line_count,
       SUM(CASE WHEN o_carrier_id NOT IN (1, 2) THEN 1 ELSE 0 END) AS low_line_count
FROM lines WHERE o_entry_d <= ol_delivery_d AND ol_delivery_d >= '2016-01-01 00:00:00.000000'
  AND ol_delivery_d < '2017-01-01 00:00:00.000000'
GROUP BY o_ol_cnt ORDER BY o_ol_cnt
